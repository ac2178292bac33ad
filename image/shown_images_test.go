package image

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// TestShownToOneIsNotShownToAnother checks that an image that was shown to one tenant remains
// unknown to another. If a repository no longer shows its images to a tenant, they must be hidden
// from that tenant only.
func TestShownToOneIsNotShownToAnother(t *testing.T) {
	c := newCatalog()
	r := recordFor(1, at(1), parts{"base": 50}, "v1")
	c.add(r)
	c.show(r.name, "acme", at(10))
	c.show(r.name, "", at(20))
	for _, tc := range []struct {
		who    tenant
		within time.Duration
		now    int
		want   bool
	}{
		{"acme", time.Hour, 11, true},
		{"", time.Hour, 21, true},
		{"other", time.Hour, 21, false},
		{"acme", time.Second, 11, false}, // it was shown too long ago
		{"acme", time.Hour, 9, false},    // the clock was set back
	} {
		if got := c.wasShown(r.name, tc.who, tc.within, at(tc.now)); got != tc.want {
			t.Errorf("shown to %q within %s of %d: %t, want %t", tc.who, tc.within, tc.now, got, tc.want)
		}
	}
	if _, known := c.missing(r.ref, "other", at(21)); known {
		t.Error("another tenant learns how much of the image is missing")
	}
	c.forgetShown(bourse.ParseImageRef("registry.test/web:v9"), "acme")
	if c.wasShown(r.name, "acme", time.Hour, at(21)) || !c.wasShown(r.name, "", time.Hour, at(21)) || !r.dirty {
		t.Error("the repository is hidden from acme: want only acme's entries removed, and the change recorded")
	}
}

// TestShownIsALabel checks that the label of an image's record preserves, across restarts, the tenants to which the
// image was shown.
func TestShownIsALabel(t *testing.T) {
	c := newCatalog()
	r := recordFor(1, at(1), parts{}, "v1")
	c.add(r)
	c.show(r.name, "acme", at(10))
	r.shown = c.tenants(r.name)
	again := &record{name: r.name, ref: r.ref}
	again.read(r.labels(), at(20))
	later := newCatalog()
	later.add(again)
	if !later.wasShown(r.name, "acme", time.Hour, at(20)) || later.wasShown(r.name, "", time.Hour, at(20)) {
		t.Errorf("after a restart, shown to %v", later.tenants(r.name))
	}
	many := map[tenant]time.Time{}
	for i := range 1000 {
		many[tenant(fmt.Sprint("org-", i))] = at(i)
	}
	text := writeShown(many)
	if got := readShown(text, at(2000)); len(labelShown)+len(text) > 4096 || !got["org-999"].Equal(at(999)) || len(got) < 50 {
		t.Errorf("a label of %d bytes for %d tenants, the latest at %s", len(text), len(got), got["org-999"])
	}
}

func FuzzReadShown(f *testing.F) {
	f.Add(`{"":1,"acme":5}`)
	f.Add(`{"acme":9223372036854775807}`)
	f.Add(strings.Repeat(`{"a":`, 10))
	f.Fuzz(func(t *testing.T, text string) {
		now := time.Unix(1<<32, 0)
		got := readShown(text, now)
		for who, at := range got {
			if at.After(now) {
				t.Errorf("%q: shown to %q in the future, %s", text, who, at)
			}
		}
		written := writeShown(got)
		if again := readShown(written, now); len(written) < maxShownBytes/2 && !maps.EqualFunc(got, again, time.Time.Equal) {
			t.Errorf("%v is read back as %v", got, again)
		}
	})
}
