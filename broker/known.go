package broker

import (
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/lookup"
)

// A broker that has just started has not heard of its cluster yet, or only of
// a part. What it could say then, "there is no such machine" or "no worker
// takes orders there", would be believed: it says nothing but that it is not
// ready, and does nothing.

// ready reports CodeUnavailable before the broker knows its cluster.
func ready(d lookup.Directory) error {
	if d.Knows() {
		return nil
	}
	return bourse.Errorf(bourse.CodeUnavailable, "this broker does not know its cluster yet: it has just started, or reaches no other server")
}

// byTag finds the worker whose things have ids that begin with tag: it is here, or away,
// or neither.
func byTag(d lookup.Directory, tag bourse.WorkerTag) (here *bourse.Member, away *bourse.Absence) {
	if m, ok := d.ByTag(tag); ok {
		return &m, nil
	}
	members, absent := d.All() // it may be back by now
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

// errAbsent is the error of what only an absent worker knows. Of one that is
// forgotten no one asks any more.
func errAbsent(a *bourse.Absence) error {
	if a.Forgotten {
		return bourse.Errorf(bourse.CodeNotFound, "not found: its worker %s was forgotten", a.ID)
	}
	return bourse.Errorf(bourse.CodeUnavailable, "its worker %s cannot be reached, since %s at the latest", a.ID, a.Since.UTC().Format(time.RFC3339))
}

// errNoMachine is what every id that leads nowhere gets.
func errNoMachine() error { return bourse.Errorf(bourse.CodeNotFound, "machine not found") }
