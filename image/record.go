package image

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// Labels of an image's record in containerd. Apart from containerd's own data, they are the store's only durable data.
const (
	labelStore = "bourse.dev/image" // "1" if the record belongs to this store
	labelTags  = "bourse.dev/tags"  // tags by which the image was last requested, separated by spaces
	labelUsed  = "bourse.dev/used"  // time of the last use (RFC 3339)
	labelShown = "bourse.dev/shown" // tenants to whom the registry has shown the image, and when: {"tenant": seconds}
)

// maxTags is the maximum number of tags stored for an image. It is limited because a containerd label has at most 4096
// bytes.
const maxTags = 24

// parts contains the disk space of an image's parts in bytes. Blobs are identified by digest, and unpacked layers by
// the name of their snapshot. A part that two images share has the same name in both.
type parts map[string]int64

// snapshotPart returns the name of an unpacked layer among an image's parts. The prefix is needed
// because the digest of an uncompressed layer may equal the name of its snapshot.
func snapshotPart(chain string) string { return "snapshot " + chain }

func (p parts) sum() int64 {
	var sum int64
	for _, size := range p {
		sum += size
	}
	return sum
}

// record is an image on this worker.
type record struct {
	name   string          // name in containerd
	ref    bourse.ImageRef // the image's name without a tag
	tags   []string        // tags by which the image was requested, newest first
	bytes  int64           // compressed size of the configuration and layers
	needs  []string        // digests of the configuration and layers
	parts  parts
	usedAt time.Time
	// Tenants, as stored in containerd or about to be stored; the catalog contains the current values.
	shown map[tenant]time.Time
	dirty bool // whether tags, usedAt or shown must still be stored in containerd
}

// image returns the record as a bourse.Image.
func (r *record) image() bourse.Image {
	ref := r.ref
	ref.Labels = maps.Clone(ref.Labels)
	if len(r.tags) > 0 {
		ref.Tag = r.tags[0]
	}
	return bourse.Image{Ref: ref, Bytes: r.bytes, Disk: r.parts.sum(), UsedAt: r.usedAt}
}

// labels returns the labels of the record in containerd.
func (r *record) labels() map[string]string {
	return map[string]string{
		labelStore: "1",
		labelTags:  strings.Join(r.tags, " "),
		labelUsed:  r.usedAt.UTC().Format(time.RFC3339Nano),
		labelShown: writeShown(r.shown),
	}
}

// read parses the labels of a record in containerd. It ignores invalid values, which only another program can have
// written. This is safe, because the tags and the time are only a cache.
func (r *record) read(labels map[string]string, now time.Time) {
	for tag := range strings.FieldsSeq(labels[labelTags]) {
		named := r.ref
		named.Tag, named.Digest = tag, ""
		if checkRef(named) == nil && len(r.tags) < maxTags && !slices.Contains(r.tags, tag) {
			r.tags = append(r.tags, tag)
		}
	}
	used, err := time.Parse(time.RFC3339Nano, labels[labelUsed])
	if err != nil || used.After(now) {
		// A future time, which occurs if the clock was set back, would prevent the image's eviction.
		used = now
	}
	r.usedAt = used
	r.shown = readShown(labels[labelShown], now)
}

// addTag makes tag the newest tag. It returns false if tag already was the newest tag.
func (r *record) addTag(tag string) bool {
	if tag == "" || len(r.tags) > 0 && r.tags[0] == tag {
		return false
	}
	r.tags = slices.DeleteFunc(r.tags, func(t string) bool { return t == tag })
	r.tags = slices.Insert(r.tags, 0, tag)
	r.tags = r.tags[:min(len(r.tags), maxTags)]
	return true
}

// dropTag removes a tag that now refers to another image. It returns false if the record does not
// have the tag.
func (r *record) dropTag(tag string) bool {
	n := len(r.tags)
	r.tags = slices.DeleteFunc(r.tags, func(t string) bool { return t == tag })
	return len(r.tags) != n
}
