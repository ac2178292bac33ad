package wire

import (
	"cmp"

	"github.com/bourse-dev/bourse"
)

// Order compares versions of one shared row: the greater one counts. It is a
// total order on versions that differ, so that all members agree on the
// greatest, in whatever order they receive them.
func Order(a, b Version) int {
	first, later := 0, cmp.Compare(a.Clock, b.Clock)
	if a.Table == TableApps {
		// What an app is made with stays: its organization, its network. Only
		// its deletion, which comes first here, is a change of it.
		first, later = orderApps(a, b), -later
	}
	if a.Table == TableTokens {
		// What a token is good for stays. Only its end, which comes first here, is
		// a change of it: revoked wins, whatever the clocks say.
		first, later = cmp.Compare(ended(a), ended(b)), -later
	}
	if a.Table == TableForgotten { // what is void never counts again
		first = cmp.Compare(intOf(a.Columns.Get("until")), intOf(b.Columns.Get("until")))
	}
	return cmp.Or(
		first,
		later,
		cmp.Compare(a.Site, b.Site),
		// Below this line only for a site that has given one clock twice.
		cmp.Compare(a.Epoch, b.Epoch),
		cmp.Compare(a.Seq, b.Seq),
		cmp.Compare(a.Hash, b.Hash),
	)
}

// merge says what two versions of a shared row mean together.
func merge(a, b Version) Version {
	if Order(a, b) < 0 {
		return b
	}
	return a
}

// orderApps asks bourse.App.Merge, which returns the greater of two apps and of
// two that it holds for equal the first.
func orderApps(a, b Version) int {
	x, y := appOf(a), appOf(b)
	x.Org, y.Org = "x", "y" // says which came back; Merge does not look at it
	switch {
	case x.Merge(y).Org == "y":
		return -1
	case y.Merge(x).Org == "x":
		return 1
	}
	return 0
}

// ended returns 1 for a token that was revoked, else 0.
func ended(r Version) int {
	if r.Deleted || r.Columns.Get("revoked_at") != nil {
		return 1
	}
	return 0
}

// appOf reads what decides which of two apps counts.
func appOf(r Version) bourse.App {
	app := bourse.App{
		Name: bourse.AppName(r.Key), ID: TextOf(r.Columns.Get("id")), Life: int(intOf(r.Columns.Get("life"))),
		CreatedAt: TimeOf(intOf(r.Columns.Get("created_at"))),
	}
	if at := r.Columns.Get("deleted_at"); at != nil {
		t := TimeOf(intOf(at))
		app.DeletedAt = &t
	}
	return app
}
