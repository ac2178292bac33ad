package wire

import (
	"cmp"

	"github.com/bourse-dev/bourse"
)

// Order compares two versions of a shared row like cmp.Compare. The greater version wins. The order
// is total, so all members agree on the greatest version, regardless of the order in which they
// receive the versions.
func Order(a, b Version) int {
	first, later := 0, cmp.Compare(a.Clock, b.Clock)
	if a.Table == TableApps {
		// An app's organization and network never change, and its row changes only when the app is
		// deleted. Therefore, a deleted app wins. If neither app is deleted, the earlier version
		// wins.
		first, later = orderApps(a, b), -later
	}
	if a.Table == TableTokens || a.Table == TableWireGuard {
		// A token's or laptop's permissions never change, and its row changes only when the token is
		// revoked or the laptop is removed. Therefore, the revoked or removed version wins,
		// regardless of the clocks.
		first, later = cmp.Compare(revokedRank(a), revokedRank(b)), -later
	}
	if a.Table == TableRemoved { // the removal with the later epoch wins, so a removal is never undone
		first = cmp.Compare(intOf(a.Columns.Get("until")), intOf(b.Columns.Get("until")))
	}
	if a.Table == TableCertified { // the newer certificate wins, even if the older one is recorded later
		first = cmp.Compare(intOf(a.Columns.Get("issued_at")), intOf(b.Columns.Get("issued_at")))
	}
	return cmp.Or(
		first,
		later,
		cmp.Compare(a.Site, b.Site),
		// The following comparisons matter only if a site has used the same clock value twice.
		cmp.Compare(a.Epoch, b.Epoch),
		cmp.Compare(a.Seq, b.Seq),
		cmp.Compare(a.Hash, b.Hash),
	)
}

// merge returns the version that wins: the greater one in Order.
func merge(a, b Version) Version {
	if Order(a, b) < 0 {
		return b
	}
	return a
}

// orderApps compares two apps like cmp.Compare. The greater app is the one that bourse.App.Merge
// returns. If the apps are equal, Merge returns its receiver.
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

// appOf returns an app with the fields that bourse.App.Merge compares.
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
