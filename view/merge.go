package view

import (
	"cmp"

	"github.com/bourse-dev/bourse"
)

// order compares versions of one shared row: the greater one stands. It is a
// total order on versions that differ, so that all members agree on the
// greatest, in whatever order they hear of them.
func order(a, b record) int {
	first, later := 0, cmp.Compare(a.clock, b.clock)
	if a.table == TableApps {
		// What an app is made with stays: its organization, its network. Only
		// its deletion, which comes first here, is a change of it.
		first, later = orderApps(a, b), -later
	}
	return cmp.Or(
		first,
		later,
		cmp.Compare(a.Site, b.Site),
		// Below this line only for a site that has given one clock twice.
		cmp.Compare(a.Epoch, b.Epoch),
		cmp.Compare(a.Seq, b.Seq),
		cmp.Compare(a.hash, b.hash),
	)
}

// merge says what two versions of a shared row mean together.
func merge(a, b record) record {
	if order(a, b) < 0 {
		return b
	}
	return a
}

// orderApps asks bourse.App.Merge, which gives the greater of two apps and of
// two that it holds for equal the first.
func orderApps(a, b record) int {
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

// appOf reads what decides which of two apps stands.
func appOf(r record) bourse.App {
	app := bourse.App{
		Name: bourse.AppName(r.key), ID: textOf(r.cols.get("id")), Life: int(intOf(r.cols.get("life"))),
		CreatedAt: timeOf(intOf(r.cols.get("created_at"))),
	}
	if at := r.cols.get("deleted_at"); at != nil {
		t := timeOf(intOf(at))
		app.DeletedAt = &t
	}
	return app
}
