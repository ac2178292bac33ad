package broker

import (
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/lookup"
)

// A broker that has just started has little or no information about its cluster, so responses such as "machine not
// found" or "no worker accepts orders there" might be wrong. Therefore, until it has complete information, the broker
// responds only that it is not ready.

// ready returns CodeUnavailable until the broker knows its cluster.
func ready(d lookup.Directory) error {
	if d.Knows() {
		return nil
	}
	return bourse.Errorf(bourse.CodeUnavailable, "this broker does not know its cluster yet: it has just started, or cannot reach any other server")
}

// byTag looks up a worker by its tag, the prefix of its objects' IDs. It returns the worker as here if the worker is a
// member, and as away if the worker is absent. If the worker is unknown, both results are nil.
func byTag(d lookup.Directory, tag bourse.WorkerTag) (here *bourse.Member, away *bourse.Absence) {
	if m, ok := d.ByTag(tag); ok {
		return &m, nil
	}
	members, absent := d.All() // an absent worker may just have rejoined, so check the members again
	if i := slices.IndexFunc(members, func(m bourse.Member) bool { return m.Tag == tag }); i >= 0 {
		m := members[i]
		return &m, nil
	}
	if i := slices.IndexFunc(absent, func(a bourse.Absence) bool { return a.Tag == tag }); i >= 0 {
		a := absent[i]
		return nil, &a
	}
	return nil, nil
}

// errAbsent returns the error for an object of an absent worker: unavailable, or not_found if that
// worker has been removed.
func errAbsent(a *bourse.Absence) error {
	if a.Removed {
		return bourse.Errorf(bourse.CodeNotFound, "not found: its worker %s has been removed", a.ID)
	}
	return bourse.Errorf(bourse.CodeUnavailable, "its worker %s has been unreachable since %s or earlier", a.ID, a.Since.UTC().Format(time.RFC3339))
}

// errNoMachine returns the error for a machine that does not exist.
func errNoMachine() error { return bourse.Errorf(bourse.CodeNotFound, "machine not found") }
