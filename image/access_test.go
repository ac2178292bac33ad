package image

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// TestShownToOneIsNotShownToAnother checks that confirming one tenant's access to an image does not give other
// tenants access. If a registry denies a tenant access to a repository, only that tenant loses access.
func TestShownToOneIsNotShownToAnother(t *testing.T) {
	c := newCatalog()
	r := recordFor(1, at(1), parts{"base": 50}, "v1")
	c.add(r)
	c.recordAccess(r.name, "acme", at(10))
	c.recordAccess(r.name, "", at(20))
	for _, tc := range []struct {
		who    tenant
		within time.Duration
		now    int
		want   bool
	}{
		{"acme", time.Hour, 11, true},
		{"", time.Hour, 21, true},
		{"other", time.Hour, 21, false},
		{"acme", time.Second, 11, false}, // confirmed too long ago
		{"acme", time.Hour, 9, false},    // the clock was set back
	} {
		if got := c.hadAccess(r.name, tc.who, tc.within, at(tc.now)); got != tc.want {
			t.Errorf("access of %q within %s before %d: got %t, want %t", tc.who, tc.within, tc.now, got, tc.want)
		}
	}
	if _, known := c.missing(r.ref, "other", at(21)); known {
		t.Error("missing revealed an image's size to a tenant without access")
	}
	c.forgetAccess(bourse.ParseImageRef("registry.test/web:v9"), "acme")
	if c.hadAccess(r.name, "acme", time.Hour, at(21)) || !c.hadAccess(r.name, "", time.Hour, at(21)) || !r.dirty {
		t.Error("after forgetAccess for acme: want only acme's entries removed, and the record marked as dirty")
	}
}

// TestShownIsALabel checks that the label of an image's record preserves the tenants with access to the image
// across restarts.
func TestShownIsALabel(t *testing.T) {
	c := newCatalog()
	r := recordFor(1, at(1), parts{}, "v1")
	c.add(r)
	c.recordAccess(r.name, "acme", at(10))
	r.access = c.tenants(r.name)
	again := &record{name: r.name, ref: r.ref}
	again.read(r.labels(), at(20))
	later := newCatalog()
	later.add(again)
	if !later.hadAccess(r.name, "acme", time.Hour, at(20)) || later.hadAccess(r.name, "", time.Hour, at(20)) {
		t.Errorf("after a restart, these tenants have access: %v, want only acme", later.tenants(r.name))
	}
	many := map[tenant]time.Time{}
	for i := range 1000 {
		many[tenant(fmt.Sprint("org-", i))] = at(i)
	}
	text := writeAccess(many)
	if got := readAccess(text, at(2000)); len(labelAccess)+len(text) > 4096 || !got["org-999"].Equal(at(999)) || len(got) < 50 {
		t.Errorf("got a label of %d bytes with %d tenants, the latest at %s", len(text), len(got), got["org-999"])
	}
}

func FuzzReadShown(f *testing.F) {
	f.Add(`{"":1,"acme":5}`)
	f.Add(`{"acme":9223372036854775807}`)
	f.Add(strings.Repeat(`{"a":`, 10))
	f.Fuzz(func(t *testing.T, text string) {
		now := time.Unix(1<<32, 0)
		got := readAccess(text, now)
		for who, at := range got {
			if at.After(now) {
				t.Errorf("%q: got access of %q confirmed in the future, at %s", text, who, at)
			}
		}
		written := writeAccess(got)
		if again := readAccess(written, now); len(written) < maxAccessBytes/2 && !maps.EqualFunc(got, again, time.Time.Equal) {
			t.Errorf("%v is read back as %v", got, again)
		}
	})
}
