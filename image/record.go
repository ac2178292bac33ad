package image

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// Labels of an image's record in containerd. They are the store's only memory
// besides containerd's own.
const (
	labelStore = "bourse.dev/image" // "1": the record is this store's
	labelTags  = "bourse.dev/tags"  // the tags that it was last asked for by, separated by spaces
	labelUsed  = "bourse.dev/used"  // when it was last used, as RFC 3339 has it
	labelShown = "bourse.dev/shown" // the askers that its registry has shown it to, and when: {"asker": seconds}
)

// maxTags is how many tags of one image are remembered: containerd takes 4096
// bytes for a label.
const maxTags = 24

// parts are what an image takes on disk: blobs by their digests, unpacked layers
// by the names of their snapshots, in bytes. What two images have in common has
// the same name in both.
type parts map[string]int64

// snapshotPart names an unpacked layer; the digest of a layer that is stored
// uncompressed may be the name of its snapshot too.
func snapshotPart(chain string) string { return "snapshot " + chain }

func (p parts) sum() int64 {
	var sum int64
	for _, size := range p {
		sum += size
	}
	return sum
}

// record is an image that is there.
type record struct {
	name   string          // of its record in containerd
	ref    bourse.ImageRef // without a tag
	tags   []string        // the newest first
	bytes  int64           // compressed: configuration and layers
	needs  []string        // digests of the configuration and layers
	parts  parts
	usedAt time.Time
	shown  map[asker]time.Time // as it is, or is to be, in containerd; what counts is in the catalogue
	dirty  bool                // tags, usedAt or shown are not in containerd yet
}

// image returns the public form of the record.
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

// read reads the labels of a record of containerd. What cannot be read, because
// another program wrote it, is left out: the tags and the time are a cache.
func (r *record) read(labels map[string]string, now time.Time) {
	for tag := range strings.FieldsSeq(labels[labelTags]) {
		named := r.ref
		named.Tag, named.Digest = tag, ""
		if checkRef(named) == nil && len(r.tags) < maxTags && !slices.Contains(r.tags, tag) {
			r.tags = append(r.tags, tag)
		}
	}
	used, err := time.Parse(time.RFC3339Nano, labels[labelUsed])
	if err != nil || used.After(now) { // a clock that was set back must not keep it forever
		used = now
	}
	r.usedAt = used
	r.shown = readShown(labels[labelShown], now)
}

// addTag puts a tag first and reports whether that changed anything.
func (r *record) addTag(tag string) bool {
	if tag == "" || len(r.tags) > 0 && r.tags[0] == tag {
		return false
	}
	r.tags = slices.DeleteFunc(r.tags, func(t string) bool { return t == tag })
	r.tags = slices.Insert(r.tags, 0, tag)
	r.tags = r.tags[:min(len(r.tags), maxTags)]
	return true
}

// dropTag takes a tag away, which means another image now.
func (r *record) dropTag(tag string) bool {
	n := len(r.tags)
	r.tags = slices.DeleteFunc(r.tags, func(t string) bool { return t == tag })
	return len(r.tags) != n
}
