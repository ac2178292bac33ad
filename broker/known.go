package broker

import (
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/lookup"
)

// A broker that has just started does not know its cluster yet, or only a part of it. Its answers, such as "machine
// not found" or "no worker accepts orders there", might be wrong. Therefore it only replies that it is not ready.

// ready returns CodeUnavailable until the broker knows its cluster.
func ready(d lookup.Directory) error {
	if d.Knows() {
		return nil
	}
	return bourse.Errorf(bourse.CodeUnavailable, "this broker does not know its cluster yet: it has just started, or cannot reach any other server")
}

// byTag returns the worker with a tag, which is the prefix of its objects' IDs: a member, an absent worker, or
// neither.
func byTag(d lookup.Directory, tag bourse.WorkerTag) (here *bourse.Member, away *bourse.Absence) {
	if m, ok := d.ByTag(tag); ok {
		return &m, nil
	}
	members, absent := d.All() // it may have returned by now
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

// errAbsent returns the error for an object of an absent worker. If that worker has been removed, the object is not
// found.
func errAbsent(a *bourse.Absence) error {
	if a.Forgotten {
		return bourse.Errorf(bourse.CodeNotFound, "not found: its worker %s has been removed", a.ID)
	}
	return bourse.Errorf(bourse.CodeUnavailable, "its worker %s has been unreachable since %s or earlier", a.ID, a.Since.UTC().Format(time.RFC3339))
}

// errNoMachine returns the error for every ID that is not a machine's.
func errNoMachine() error { return bourse.Errorf(bourse.CodeNotFound, "machine not found") }
