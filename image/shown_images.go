package image

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// An image on a worker is available only to tenants to which its registry has shown it. The catalog contains these
// tenants, with the times. They are also stored in a label of the image's record (labelShown), to survive a restart of
// the daemon.

const (
	maxShown      = 8192               // maximum number of combinations of image and tenant in memory
	maxShownBytes = 3 << 10            // maximum size of the label; containerd limits key and value to 4096 bytes
	shownFor      = 7 * 24 * time.Hour // how long an image counts as shown while the registry cannot be reached
)

// shownKey identifies an image, by its record's name, and a tenant.
type shownKey struct {
	name string
	who  tenant
}

// show records that an image was shown to a tenant.
func (c *catalog) show(name string, who tenant, now time.Time) {
	remember(c.shownAt, maxShown, shownKey{name, who}, now)
	if r, ok := c.records[name]; ok {
		r.dirty = true
	}
}

// forgetShown removes the entries about a repository's images for one tenant. It is called when the registry refuses to
// show the tenant one of them.
func (c *catalog) forgetShown(ref bourse.ImageRef, who tenant) {
	for key := range c.shownAt {
		other := bourse.ParseImageRef(key.name)
		if key.who != who || other.Registry != ref.Registry || other.Repository != ref.Repository {
			continue
		}
		delete(c.shownAt, key)
		if r, ok := c.records[key.name]; ok {
			r.dirty = true
		}
	}
}

// wasShown reports whether an image was shown to a tenant within the given duration before now.
func (c *catalog) wasShown(name string, who tenant, within time.Duration, now time.Time) bool {
	at, ok := c.shownAt[shownKey{name, who}]
	return ok && !at.After(now) && now.Sub(at) < within
}

// tenants returns the tenants to which an image was shown, and when.
func (c *catalog) tenants(name string) map[tenant]time.Time {
	out := map[tenant]time.Time{}
	for key, at := range c.shownAt {
		if key.name == name {
			out[key.who] = at
		}
	}
	return out
}

// writeShown encodes the label. If the label is too large, it omits the oldest entries; the registry must then show the
// image to those tenants again.
func writeShown(shown map[tenant]time.Time) string {
	latest := slices.SortedFunc(maps.Keys(shown), func(a, b tenant) int { return shown[b].Compare(shown[a]) })
	out, size := map[tenant]int64{}, 2
	for _, who := range latest {
		key, err := json.Marshal(who)
		if size += len(key) + len(`:1234567890,`); err != nil || size > maxShownBytes {
			break
		}
		out[who] = shown[who].Unix()
	}
	text, err := json.Marshal(out)
	if err != nil { // cannot happen for a map of numbers
		return ""
	}
	return string(text)
}

// readShown decodes the label. It ignores invalid entries.
func readShown(text string, now time.Time) map[tenant]time.Time {
	var in map[tenant]int64
	if json.Unmarshal([]byte(text), &in) != nil {
		return nil
	}
	out := map[tenant]time.Time{}
	for who, seconds := range in {
		if at := time.Unix(seconds, 0); !at.After(now) {
			// A future time, which occurs if the clock was set back, would keep the entry forever.
			out[who] = at
		}
	}
	return out
}
