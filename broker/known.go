package broker

import (
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// A broker that has just started has not heard of its cluster yet, or only of
// a part. What it could say then, "there is no such machine" or "no worker
// takes orders there", would be believed: it says nothing but that it is not
// ready, and does nothing.

// ready reports CodeUnavailable before the broker knows its cluster.
func (b *Broker) ready() error {
	if b.Directory.Knows() {
		return nil
	}
	return bourse.Errorf(bourse.CodeUnavailable, "this broker does not know its cluster yet: it has just started, or reaches no other server")
}

// early reports whether an endpoint serves before the broker knows its cluster:
// it says only what this server is and has.
func early(pattern string) bool {
	_, path, _ := strings.Cut(pattern, " ")
	return pattern == anyPath || path == "/v1/health" || strings.HasPrefix(path, "/v1/view/")
}

// absentTag finds the absent worker whose things have ids that begin with tag.
func (b *Broker) absentTag(tag bourse.WorkerTag) (bourse.Absence, bool) {
	absent := b.Directory.Absent()
	i := slices.IndexFunc(absent, func(a bourse.Absence) bool { return a.Tag == tag })
	if i < 0 {
		return bourse.Absence{}, false
	}
	return absent[i], true
}

// absentThat returns the absent workers that keep says yes to.
func (b *Broker) absentThat(keep func(*bourse.Absence) bool) []bourse.WorkerID {
	var out []bourse.WorkerID
	for _, a := range b.Directory.Absent() {
		if keep(&a) {
			out = append(out, a.ID)
		}
	}
	return out
}

// errAbsent is the error of what only an absent worker knows.
func errAbsent(a bourse.Absence) error {
	return bourse.Errorf(bourse.CodeUnavailable, "its worker %s cannot be reached, since %s at the latest", a.ID, a.Since.UTC().Format(time.RFC3339))
}
