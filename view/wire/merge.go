package wire

import (
	"cmp"

	"github.com/bourse-dev/bourse"
)

// Order compares two versions of a shared row. The greater one wins. Order is a total order, so
// all members agree on the greatest version, regardless of the order in which they receive the
// versions.
func Order(a, b Version) int {
	first, later := 0, cmp.Compare(a.Clock, b.Clock)
	if a.Table == TableApps {
		// An app's organization and network never change. The row changes only when the app is
		// deleted. Therefore, a deleted app wins; if neither is deleted, the earlier version wins.
		first, later = orderApps(a, b), -later
	}
	if a.Table == TableTokens || a.Table == TableWireGuard {
		// The permissions of a token or a laptop never change. The row changes only when the token is
		// revoked or the laptop is removed, so that version wins, whatever the clocks are.
		first, later = cmp.Compare(revokedRank(a), revokedRank(b)), -later
	}
	if a.Table == TableRemoved { // the removal with the later epoch wins, so a removal is never undone
		first = cmp.Compare(intOf(a.Columns.Get("until")), intOf(b.Columns.Get("until")))
	}
	if a.Table == TableCertified { // the newer certificate wins, even if a broker sees the older one later
		first = cmp.Compare(intOf(a.Columns.Get("issued_at")), intOf(b.Columns.Get("issued_at")))
	}
	return cmp.Or(
		first,
		later,
		cmp.Compare(a.Site, b.Site),
		// The following comparisons only matter if a site has used one clock value twice.
		cmp.Compare(a.Epoch, b.Epoch),
		cmp.Compare(a.Seq, b.Seq),
		cmp.Compare(a.Hash, b.Hash),
	)
}

// merge returns the greater of two versions of a shared row.
func merge(a, b Version) Version {
	if Order(a, b) < 0 {
		return b
	}
	return a
}

// orderApps compares two apps with bourse.App.Merge, which returns its first argument if neither
// app wins.
func orderApps(a, b Version) int {
	x, y := appOf(a), appOf(b)
	x.Org, y.Org = "x", "y" // Merge ignores Org, so Org can mark which app has won
	switch {
	case x.Merge(y).Org == "y":
		return -1
	case y.Merge(x).Org == "x":
		return 1
	}
	return 0
}

// revokedRank returns 1 for a revoked token or a removed laptop, otherwise 0.
func revokedRank(r Version) int {
	if r.Deleted || r.Columns.Get("revoked_at") != nil || r.Columns.Get("removed_at") != nil {
		return 1
	}
	return 0
}

// appOf returns the fields of an app that bourse.App.Merge compares.
func appOf(r Version) bourse.App {
	app := bourse.App{
		Name: bourse.AppName(r.Key), ID: TextOf(r.Columns.Get("id")), Generation: int(intOf(r.Columns.Get("generation"))),
		CreatedAt: TimeOf(intOf(r.Columns.Get("created_at"))),
	}
	if at := r.Columns.Get("deleted_at"); at != nil {
		t := TimeOf(intOf(at))
		app.DeletedAt = &t
	}
	return app
}
