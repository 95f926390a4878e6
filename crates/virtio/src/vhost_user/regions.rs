//! The rules of a memory table. Files and mappings are the caller's responsibility.

use super::error::ProtocolError;
use super::message::RegionSpec;

/// The most regions, even if the offer says more: each lookup walks the table, and each pair is
/// compared when the table is set.
pub(super) const MAX_SLOTS: usize = 512;

/// The most bytes that all regions of one frontend may have together.
///
/// The files may be sparse, so a large size costs no memory, but it uses up our address space. The
/// largest virtual machines that are rented out have some 12 TiB. Three tables of this size fit
/// into [`MAX_MAPPED`](crate::memory::MAX_MAPPED); a table that replaces another one needs space
/// beside it for a moment.
pub(super) const MAX_TOTAL: u64 = 16 << 40;

/// Checks one region by itself: it is not empty, and no sum of its numbers overflows.
pub(super) fn check(region: &RegionSpec) -> Result<(), ProtocolError> {
    if region.size == 0 {
        return Err(ProtocolError::RegionEmpty { guest_addr: region.guest_addr });
    }
    for (what, start) in
        [("guest address", region.guest_addr), ("user address", region.user_addr), ("mmap offset", region.mmap_offset)]
    {
        if start.checked_add(region.size).is_none() {
            return Err(ProtocolError::RegionOverflow { what, start, size: region.size });
        }
    }
    Ok(())
}

/// Checks that a region shares no byte with the regions of a table, neither in guest nor in user
/// addresses. All of them must have passed [`check`].
pub(super) fn check_disjoint(table: &[RegionSpec], region: &RegionSpec) -> Result<(), ProtocolError> {
    for other in table {
        for (what, a, b) in
            [("guest", other.guest_addr, region.guest_addr), ("user", other.user_addr, region.user_addr)]
        {
            // Neither sum can overflow: both regions passed `check`.
            if a < b + region.size && b < a + other.size {
                return Err(ProtocolError::RegionOverlap {
                    what,
                    first: a,
                    first_size: other.size,
                    second: b,
                    second_size: region.size,
                });
            }
        }
    }
    Ok(())
}

/// Checks that the regions of a table are not too large together.
pub(super) fn check_total(table: &[RegionSpec]) -> Result<(), ProtocolError> {
    let total = table.iter().fold(0, |total: u64, region| total.saturating_add(region.size));
    if total > MAX_TOTAL { Err(ProtocolError::TooMuchMemory { total, max: MAX_TOTAL }) } else { Ok(()) }
}

/// Checks a complete table.
pub(super) fn check_table(table: &[RegionSpec], max: usize) -> Result<(), ProtocolError> {
    if table.len() > max {
        return Err(ProtocolError::TooManyRegions { got: table.len(), max });
    }
    for (i, region) in table.iter().enumerate() {
        check(region)?;
        check_disjoint(&table[..i], region)?;
    }
    check_total(table)
}

/// Returns whether some region has this user address.
pub(super) fn has_user_addr(table: &[RegionSpec], addr: u64) -> bool {
    // Cites vhost-user-memory-1.
    table.iter().any(|region| addr.checked_sub(region.user_addr).is_some_and(|offset| offset < region.size))
}

/// Finds the region that REM_MEM_REG names: the one of the same guest address, user address and
/// size. The offset in the file is ignored.
pub(super) fn find(table: &[RegionSpec], region: &RegionSpec) -> Option<usize> {
    table.iter().position(|other| {
        // Cites vhost-user-rem-mem-reg-1.
        (other.guest_addr, other.user_addr, other.size) == (region.guest_addr, region.user_addr, region.size)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(guest_addr: u64, size: u64, user_addr: u64, mmap_offset: u64) -> RegionSpec {
        RegionSpec { guest_addr, size, user_addr, mmap_offset }
    }

    #[test]
    fn overflow_table() {
        const MAX: u64 = u64::MAX;
        // (guest, size, user, offset, accepted)
        let table = [
            (0, 1, 0, 0, true),
            (0, 0, 0, 0, false),
            (MAX, 0, MAX, MAX, false),
            (MAX, 1, 0, 0, false),
            (0, 1, MAX, 0, false),
            (0, 1, 0, MAX, false),
            (MAX - 1, 1, MAX - 1, MAX - 1, true),
            (1, MAX, 0, 0, false),
            (0, MAX, 1, 0, false),
            (0, MAX, 0, 1, false),
            (0, MAX, 0, 0, true),
            (1 << 63, 1 << 63, 0, 0, false),
            (0, 1 << 63, 1 << 63, 0, false),
            (0, 1 << 63, 0, 1 << 63, false),
            (0xffff_ffff_ffff_f000, 0x1000, 0, 0, false),
            (0xffff_ffff_ffff_f000, 0xfff, 0, 0, true),
        ];
        for (guest, size, user, offset, accepted) in table {
            let region = region(guest, size, user, offset);
            assert_eq!(check(&region).is_ok(), accepted, "{region:x?}");
        }
    }

    #[test]
    fn overlaps_are_found_in_both_address_spaces_and_neighbours_are_not() {
        let first = region(0x1000, 0x1000, 0x10_0000, 0);
        let far = 0x90_0000;
        for (guest, size, overlaps) in [
            (0x0, 0x1000, false),
            (0x0, 0x1001, true),
            (0x1fff, 1, true),
            (0x2000, 1, false),
            (0x1800, 0x10, true),
            (0x0, 0x10_0000, true),
            (0x1000, 0x1000, true),
        ] {
            let by_guest = region(guest, size, far, 0);
            assert_eq!(check_disjoint(&[first], &by_guest).is_err(), overlaps, "{by_guest:x?}");
            let by_user = region(far, size, guest + 0x10_0000 - 0x1000, 0);
            assert_eq!(check_disjoint(&[first], &by_user).is_err(), overlaps, "{by_user:x?}");
        }
    }

    #[test]
    fn a_table_is_checked_pair_by_pair_and_for_its_length() {
        let row = |i: u64| region(i * 0x1000, 0x1000, 0x100_0000 + i * 0x1000, 0);
        let mut table: Vec<_> = (0..8).map(row).collect();
        assert_eq!(check_table(&table, 8), Ok(()));
        assert_eq!(check_table(&table, 7), Err(ProtocolError::TooManyRegions { got: 8, max: 7 }));
        table[7].guest_addr = 0x800;
        assert!(matches!(check_table(&table, 8), Err(ProtocolError::RegionOverlap { what: "guest", .. })));
        assert_eq!(check_table(&[], 8), Ok(()));
    }

    #[test]
    fn a_table_has_no_more_bytes_than_a_port_may_map() {
        let row = |i: u64, size: u64| region(i << 44, size, i << 44, 0);
        let quarter = MAX_TOTAL / 4;
        let mut table: Vec<_> = (0..4).map(|i| row(i, quarter)).collect();
        assert_eq!(check_table(&table, 8), Ok(()));
        table.push(row(4, 1));
        let refused = check_table(&table, 8).unwrap_err();
        assert_eq!(refused, ProtocolError::TooMuchMemory { total: MAX_TOTAL + 1, max: MAX_TOTAL });
        assert_eq!(
            refused.to_string(),
            "memory regions of 0x100000000001 bytes together; at most 0x100000000000 are taken"
        );
        // The sum itself may overflow.
        assert!(check_total(&[row(0, u64::MAX), row(1, u64::MAX)]).is_err());
    }

    // Cites vhost-user-memory-1, vhost-user-rem-mem-reg-1.
    #[test]
    fn lookups() {
        let table = [region(0, 0x1000, 0x5000, 0), region(0x1000, 0x1000, u64::MAX - 0x1000, 0)];
        for (addr, there) in
            [(0x4fff, false), (0x5000, true), (0x5fff, true), (0x6000, false), (u64::MAX - 1, true), (u64::MAX, false)]
        {
            assert_eq!(has_user_addr(&table, addr), there, "{addr:#x}");
        }
        assert_eq!(find(&table, &region(0, 0x1000, 0x5000, 77)), Some(0));
        assert_eq!(find(&table, &region(0, 0x1001, 0x5000, 0)), None);
    }
}
