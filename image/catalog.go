package image

import (
	"maps"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// Limits on the catalog's data about images that are not on this worker.
const (
	maxDigests = 4096 // number of tags
	maxKnown   = 1024 // number of manifests, each with about ten layers
)

// catalog is a store's in-memory data about images. It is guarded by Store.mu.
type catalog struct {
	records map[string]*record // records by their names in containerd
	tags    map[string]string  // names of records, by image name with tag
	// Number of records that contain each blob, by the blob's digest. Pulls skip these blobs.
	present map[string]int

	digests map[string]string // digests that registries last returned, by image name with tag; bounded
	// Configurations and layers of images, by recordName; bounded.
	parts    map[string]parts
	accessAt map[accessKey]time.Time // when a tenant's access to an image was last confirmed; bounded
}

func newCatalog() *catalog {
	return &catalog{
		records: map[string]*record{}, tags: map[string]string{}, present: map[string]int{},
		digests: map[string]string{}, parts: map[string]parts{}, accessAt: map[accessKey]time.Time{},
	}
}

// add adds a record, replacing one with the same name.
func (c *catalog) add(r *record) {
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
	for who, at := range r.access {
		if key := (accessKey{r.name, who}); at.After(c.accessAt[key]) {
			remember(c.accessAt, maxAccess, key, at)
		}
	}
	for _, d := range r.needs {
		c.present[d]++
	}
	for _, tag := range slices.Clone(r.tags) {
		if holder, ok := c.records[c.tags[tagOf(r, tag)]]; ok && holder != r {
			// If the daemon was killed between two writes, both records contain the tag.
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

// setTag makes a tag refer to record r, and removes it from the record to which it previously referred.
func (c *catalog) setTag(r *record, tag string) {
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

// drop removes a record, but remembers which blobs the image needs, so that the size of a later pull is known.
func (c *catalog) drop(name string) {
	r, ok := c.records[name]
	if !ok {
		return
	}
	delete(c.records, name)
	for _, tag := range r.tags {
		if c.tags[tagOf(r, tag)] == name {
			delete(c.tags, tagOf(r, tag))
			c.setDigest(tagOf(r, tag), r.ref.Digest)
		}
	}
	known := parts{}
	for _, d := range r.needs {
		known[d] = r.parts[d]
		if c.present[d]--; c.present[d] == 0 {
			delete(c.present, d)
		}
	}
	c.setParts(r.name, known)
}

// setDigest records the digest that a registry has returned for a tag.
func (c *catalog) setDigest(name, digest string) { remember(c.digests, maxDigests, name, digest) }

// setParts records an image's configuration and layers, with their sizes.
func (c *catalog) setParts(name string, needs parts) { remember(c.parts, maxKnown, name, needs) }

// remember adds an entry to a bounded map, removing an arbitrary entry if the map is full.
func remember[K comparable, V any](m map[K]V, most int, k K, v V) {
	if _, ok := m[k]; !ok && len(m) >= most {
		for other := range m {
			delete(m, other)
			break
		}
	}
	m[k] = v
}

// find returns the record of the image that a name refers to. It looks up the name's digest or,
// if the name has no digest, its tag. It returns nil if there is no such record.
func (c *catalog) find(ref bourse.ImageRef) *record {
	if ref.Digest != "" {
		return c.records[recordName(ref)]
	}
	if digest, ok := c.digests[tagName(ref)]; ok {
		ref.Digest = digest
		return c.records[recordName(ref)]
	}
	return c.records[c.tags[tagName(ref)]]
}

// missing returns the number of bytes that a pull of an image would fetch. It returns false if the tenant's access to
// the image was not confirmed, or if the image's parts are unknown.
func (c *catalog) missing(ref bourse.ImageRef, who tenant, now time.Time) (int64, bool) {
	r := c.find(ref)
	if r != nil {
		ref = r.ref
	}
	if ref.Digest == "" {
		ref.Digest = c.digests[tagName(ref)]
	}
	switch {
	case !c.hadAccess(recordName(ref), who, accessValid, now):
		return 0, false
	case r != nil:
		return 0, true
	}
	needs, ok := c.parts[recordName(ref)]
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

// byDigest returns the records of the image with the given digest, one for each repository that it was pulled from.
func (c *catalog) byDigest(digest string) []*record {
	var out []*record
	for _, r := range c.records {
		if r.ref.Digest == digest {
			out = append(out, r)
		}
	}
	return out
}

// sorted returns the records sorted by name.
func (c *catalog) sorted() []*record {
	out := make([]*record, 0, len(c.records))
	for _, name := range slices.Sorted(maps.Keys(c.records)) {
		out = append(out, c.records[name])
	}
	return out
}
