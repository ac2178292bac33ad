package image

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// Labels of an image's record in containerd. Apart from leases and containerd's own data, they are the store's only
// durable data.
const (
	labelStore  = "bourse.dev/image" // "1" if the record belongs to this store
	labelTags   = "bourse.dev/tags"  // tags by which the image was last requested, separated by spaces
	labelUsed   = "bourse.dev/used"  // time of the last use (RFC 3339)
	labelAccess = "bourse.dev/shown" // tenants whose access the registry has confirmed, and when: {"tenant": Unix time in seconds}
)

// maxTags is the maximum number of tags stored for an image. A limit is needed because containerd limits labels to
// 4096 bytes.
const maxTags = 24

// parts contains the sizes of an image's parts on disk, in bytes. The keys are digests for blobs, and results of
// snapshotPart for unpacked layers. Images that share a part use the same key for it.
type parts map[string]int64

// snapshotPart returns the key in parts for an unpacked layer, which is stored in the snapshot with the given name. The
// key needs the prefix "snapshot" because a blob may have a digest that is the same as the snapshot's name.
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
	// Tenants with access, as last written to containerd, or about to be written. The current data is in the catalog.
	access map[tenant]time.Time
	dirty  bool // whether tags, usedAt or access must still be stored in containerd
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

// labels returns the labels to store with the record in containerd.
func (r *record) labels() map[string]string {
	return map[string]string{
		labelStore:  "1",
		labelTags:   strings.Join(r.tags, " "),
		labelUsed:   r.usedAt.UTC().Format(time.RFC3339Nano),
		labelAccess: writeAccess(r.access),
	}
}

// read sets the fields of r that are stored in labels. The labels are those of the image's record in containerd. read
// ignores invalid values, which only another program can have written. Ignoring them is safe, because the next requests
// for the image restore its tags, its time of use, and its tenants.
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
		// Ignore times in the future, which occur if the clock was set back, because they would prevent the image's
		// eviction.
		used = now
	}
	r.usedAt = used
	r.access = readAccess(labels[labelAccess], now)
}

// addTag makes tag the newest tag. It returns false if it already is the newest tag.
func (r *record) addTag(tag string) bool {
	if tag == "" || len(r.tags) > 0 && r.tags[0] == tag {
		return false
	}
	r.tags = slices.DeleteFunc(r.tags, func(t string) bool { return t == tag })
	r.tags = slices.Insert(r.tags, 0, tag)
	r.tags = r.tags[:min(len(r.tags), maxTags)]
	return true
}

// dropTag removes a tag, for example because it now refers to another image. It returns false if the record does
// not have the tag.
func (r *record) dropTag(tag string) bool {
	n := len(r.tags)
	r.tags = slices.DeleteFunc(r.tags, func(t string) bool { return t == tag })
	return len(r.tags) != n
}
