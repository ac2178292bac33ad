package image

import (
	"maps"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// Bounds on what is remembered of images that are not here.
const (
	maxHeard = 4096 // tags
	maxKnown = 1024 // manifests, of some ten layers each
)

// catalogue is what a store knows in memory. It has no lock of its own.
type catalogue struct {
	records map[string]*record // by their names in containerd
	tags    map[string]string  // name with tag → the record's name
	present map[string]int     // digest of a blob that a pull need not fetch → how many records have it

	heard map[string]string     // name with tag → the latest digest from its registry; bounded
	known map[string]parts      // record name to be → configuration and layers; bounded
	shown map[shownTo]time.Time // bounded
}

func newCatalogue() *catalogue {
	return &catalogue{
		records: map[string]*record{}, tags: map[string]string{}, present: map[string]int{},
		heard: map[string]string{}, known: map[string]parts{}, shown: map[shownTo]time.Time{},
	}
}

// add puts a record in, in the place of one of the same name.
func (c *catalogue) add(r *record) {
	if old, ok := c.records[r.name]; ok {
		for _, tag := range slices.Backward(old.tags) {
			if !slices.Contains(r.tags, tag) {
				r.tags = append(r.tags, tag)
			}
		}
		r.usedAt = maxTime(r.usedAt, old.usedAt)
		c.drop(r.name)
	}
	c.records[r.name] = r
	for who, at := range r.shown {
		if key := (shownTo{r.name, who}); at.After(c.shown[key]) {
			remember(c.shown, maxShown, key, at)
		}
	}
	for _, d := range r.needs {
		c.present[d]++
	}
	for _, tag := range slices.Clone(r.tags) {
		if holder, ok := c.records[c.tags[tagOf(r, tag)]]; ok && holder != r {
			// A crash between two writes leaves the tag with both.
			loser := holder
			if holder.usedAt.After(r.usedAt) {
				loser = r
			}
			loser.dropTag(tag)
			loser.dirty = true
			if loser == r {
				continue
			}
		}
		c.tags[tagOf(r, tag)] = r.name
	}
}

func tagOf(r *record, tag string) string {
	return bourse.ImageRef{Registry: r.ref.Registry, Repository: r.ref.Repository, Tag: tag}.String()
}

// setTag has a tag mean a record from now on.
func (c *catalogue) setTag(r *record, tag string) {
	if tag == "" {
		return
	}
	name := tagOf(r, tag)
	if old, ok := c.records[c.tags[name]]; ok && old != r && old.dropTag(tag) {
		old.dirty = true
	}
	c.tags[name] = r.name
	if r.addTag(tag) {
		r.dirty = true
	}
}

// drop takes a record out. What it needs to be pulled again is still known.
func (c *catalogue) drop(name string) {
	r, ok := c.records[name]
	if !ok {
		return
	}
	delete(c.records, name)
	for _, tag := range r.tags {
		if c.tags[tagOf(r, tag)] == name {
			delete(c.tags, tagOf(r, tag))
			c.hear(tagOf(r, tag), r.ref.Digest)
		}
	}
	known := parts{}
	for _, d := range r.needs {
		known[d] = r.parts[d]
		if c.present[d]--; c.present[d] == 0 {
			delete(c.present, d)
		}
	}
	c.learn(r.name, known)
}

// hear records the digest that a registry has for a tag.
func (c *catalogue) hear(name, digest string) { remember(c.heard, maxHeard, name, digest) }

// learn records what has to be fetched for an image.
func (c *catalogue) learn(name string, needs parts) { remember(c.known, maxKnown, name, needs) }

// remember adds to a bounded map: when it is full, any one of its entries is removed.
func remember[K comparable, V any](m map[K]V, most int, k K, v V) {
	if _, ok := m[k]; !ok && len(m) >= most {
		for other := range m {
			delete(m, other)
			break
		}
	}
	m[k] = v
}

// find returns the record of a name: of its digest, or else of what its tag last
// meant.
func (c *catalogue) find(ref bourse.ImageRef) *record {
	if ref.Digest != "" {
		return c.records[recordName(ref)]
	}
	if digest, ok := c.heard[tagName(ref)]; ok {
		ref.Digest = digest
		return c.records[recordName(ref)]
	}
	return c.records[c.tags[tagName(ref)]]
}

// missing returns the bytes that a pull of the image would fetch for an asker;
// false when nothing is known of it that was shown to that asker.
func (c *catalogue) missing(ref bourse.ImageRef, who asker, now time.Time) (int64, bool) {
	r := c.find(ref)
	if r != nil {
		ref = r.ref
	}
	if ref.Digest == "" {
		ref.Digest = c.heard[tagName(ref)]
	}
	switch {
	case !c.wasShown(recordName(ref), who, shownFor, now):
		return 0, false
	case r != nil:
		return 0, true
	}
	needs, ok := c.known[recordName(ref)]
	if !ok {
		return 0, false
	}
	var sum int64
	for digest, size := range needs {
		if c.present[digest] == 0 {
			sum += size
		}
	}
	return sum, true
}

// byDigest returns the records of an image, one for each repository that it was
// pulled from.
func (c *catalogue) byDigest(digest string) []*record {
	var out []*record
	for _, r := range c.records {
		if r.ref.Digest == digest {
			out = append(out, r)
		}
	}
	return out
}

// sorted returns the records, ordered by name.
func (c *catalogue) sorted() []*record {
	out := make([]*record, 0, len(c.records))
	for _, name := range slices.Sorted(maps.Keys(c.records)) {
		out = append(out, c.records[name])
	}
	return out
}
