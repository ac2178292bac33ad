package image

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

func digestOf(n int) string { return fmt.Sprintf("sha256:%064x", n) }

// recordFor returns a record for the image registry.test/web@digest with these layers.
func recordFor(n int, used time.Time, layers parts, tags ...string) *record {
	ref := bourse.ImageRef{Registry: "registry.test", Repository: "web", Digest: digestOf(n)}
	r := &record{name: recordName(ref), ref: ref, tags: tags, bytes: layers.sum(), parts: layers, usedAt: used}
	for d := range layers {
		r.needs = append(r.needs, d)
	}
	return r
}

func TestCatalogMissing(t *testing.T) {
	c := newCatalog()
	check := func(what, name string, want int64, known bool) {
		t.Helper()
		if got, ok := c.missing(bourse.ParseImageRef(name), "", at(100)); got != want || ok != known {
			t.Errorf("%s: missing %d bytes, %t, of %s, want %d, %t", what, got, ok, name, want, known)
		}
	}
	check("never heard of", "registry.test/web:v1", 0, false)
	web := recordFor(1, at(1), parts{"base": 50, "web": 5}, "v1")
	c.add(web)
	check("present, but no tenant has access", "registry.test/web:v1", 0, false)
	for i, name := range []string{"web", "api", "web"} {
		c.recordAccess("registry.test/"+name+"@"+digestOf(i+1), "", at(50))
	}
	check("there", "registry.test/web:v1", 0, true)
	check("there", "registry.test/web@"+digestOf(1), 0, true)
	check("in another repository", "registry.test/copy@"+digestOf(1), 0, false)
	c.setDigest("registry.test/api:v1", digestOf(2))
	check("only its digest is known", "registry.test/api:v1", 0, false)
	c.setParts("registry.test/api@"+digestOf(2), parts{"base": 50, "api": 7})
	check("shares a layer", "registry.test/api:v1", 7, true)
	c.drop(web.name)
	check("no longer shares any parts", "registry.test/api:v1", 57, true)
	check("was there", "registry.test/web:v1", 55, true)
	c.setDigest("registry.test/web:v1", digestOf(3))
	check("the tag now refers to another image", "registry.test/web:v1", 0, false)
}

func TestCatalogTags(t *testing.T) {
	c := newCatalog()
	old, now := recordFor(1, at(5), parts{"a": 1}, "v1", "latest"), recordFor(2, at(1), parts{"b": 1})
	c.add(old)
	c.add(now)
	c.setTag(now, "latest")
	if diff := cmp.Diff([]string{"v1"}, old.tags); diff != "" || !old.dirty || !now.dirty {
		t.Errorf("the old image's tags (-want +got):\n%s; to be written: %t, %t", diff, old.dirty, now.dirty)
	}
	if got := c.find(bourse.ParseImageRef("registry.test/web:latest")); got != now {
		t.Errorf("the moved tag refers to %v", got)
	}
	// After a crash between two writes, two records have the tag. The most recently used record
	// keeps it.
	c = newCatalog()
	first, second := recordFor(1, at(5), parts{}, "latest"), recordFor(2, at(9), parts{}, "latest")
	c.add(second)
	c.add(first)
	if len(first.tags) != 0 || c.find(bourse.ParseImageRef("registry.test/web:latest")) != second {
		t.Errorf("tags %v and %v, want only the latter", first.tags, second.tags)
	}
}

func TestCatalogIsBounded(t *testing.T) {
	c := newCatalog()
	for i := range 3 * maxDigests {
		c.setDigest(fmt.Sprint("registry.test/a:", i), digestOf(i))
		c.setParts(digestOf(i), parts{})
		c.recordAccess(digestOf(i), "acme", at(i))
		c.recordAccess(digestOf(i), "", at(i))
	}
	if len(c.digests) != maxDigests || len(c.parts) != maxKnown || len(c.accessAt) != maxAccess {
		t.Errorf("%d tags, %d manifests and %d tenants are remembered, want %d, %d and %d",
			len(c.digests), len(c.parts), len(c.accessAt), maxDigests, maxKnown, maxAccess)
	}
}

// TestRecordLabels encodes a record's labels and decodes them again.
func TestRecordLabels(t *testing.T) {
	now := at(100)
	r := recordFor(1, at(7), parts{}, "v2", "latest")
	got := &record{name: r.name, ref: r.ref}
	got.read(r.labels(), now)
	if diff := cmp.Diff([]string{"v2", "latest"}, got.tags); diff != "" || !got.usedAt.Equal(at(7)) {
		t.Errorf("tags (-want +got):\n%s; used %s, want %s", diff, got.usedAt, at(7))
	}
	future := &record{ref: r.ref}
	future.read(map[string]string{labelUsed: at(200).Format(time.RFC3339)}, now)
	if !future.usedAt.Equal(now) {
		t.Errorf("an image with a future time was used at %s", future.usedAt)
	}
	for i := range 100 {
		r.addTag(fmt.Sprint("t", i))
	}
	if len(r.tags) != maxTags || r.tags[0] != "t99" {
		t.Errorf("%d tags, the first %s", len(r.tags), r.tags[0])
	}
}

func FuzzRecordLabels(f *testing.F) {
	f.Add("v1 latest", "2026-01-02T03:04:05Z")
	f.Add("../.. \x00 a:b @", "yesterday")
	f.Fuzz(func(t *testing.T, tags, used string) {
		r := recordFor(1, time.Time{}, parts{})
		r.read(map[string]string{labelTags: tags, labelUsed: used}, at(1))
		if len(r.tags) > maxTags || r.usedAt.After(at(1)) {
			t.Errorf("%d tags, used %s", len(r.tags), r.usedAt)
		}
		for _, tag := range r.tags {
			if _, err := parseName(tagOf(r, tag)); err != nil {
				t.Errorf("tag %q: %v", tag, err)
			}
		}
	})
}
