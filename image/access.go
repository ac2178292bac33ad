package image

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// A tenant can use an image on a worker only if the image's registry has confirmed that the tenant may access it. The
// catalog contains these tenants and the times of the confirmations. The same data is stored in a label of the image's
// record (labelAccess), so that it survives a restart of the daemon.

const (
	maxAccess      = 8192               // maximum number of confirmations in memory
	maxAccessBytes = 3 << 10            // maximum size of the label; containerd limits a label's key and value to 4096 bytes together
	accessValid    = 7 * 24 * time.Hour // how long a confirmation is valid if the registry cannot be reached
)

// accessKey identifies a confirmation by the name of the image's record and by the tenant.
type accessKey struct {
	name string
	who  tenant
}

// recordAccess records that a registry has just confirmed a tenant's access to an image.
func (c *catalog) recordAccess(name string, who tenant, now time.Time) {
	remember(c.accessAt, maxAccess, accessKey{name, who}, now)
	if r, ok := c.records[name]; ok {
		r.dirty = true
	}
}

// forgetAccess removes a tenant's access confirmations for all images in ref's repository. It is called when ref cannot
// be resolved for a permanent reason, for example because the registry denies the tenant access.
func (c *catalog) forgetAccess(ref bourse.ImageRef, who tenant) {
	for key := range c.accessAt {
		other := bourse.ParseImageRef(key.name)
		if key.who != who || other.Registry != ref.Registry || other.Repository != ref.Repository {
			continue
		}
		delete(c.accessAt, key)
		if r, ok := c.records[key.name]; ok {
			r.dirty = true
		}
	}
}

// hadAccess reports whether a tenant's access to an image was confirmed within the given duration before now.
func (c *catalog) hadAccess(name string, who tenant, within time.Duration, now time.Time) bool {
	at, ok := c.accessAt[accessKey{name, who}]
	return ok && !at.After(now) && now.Sub(at) < within
}

// tenants returns the tenants whose access to an image was confirmed, and the times of the confirmations.
func (c *catalog) tenants(name string) map[tenant]time.Time {
	out := map[tenant]time.Time{}
	for key, at := range c.accessAt {
		if key.name == name {
			out[key.who] = at
		}
	}
	return out
}

// writeAccess encodes the value of labelAccess. If the value would be too large, it omits the oldest confirmations; the
// registry must then confirm these tenants' access again.
func writeAccess(access map[tenant]time.Time) string {
	latest := slices.SortedFunc(maps.Keys(access), func(a, b tenant) int { return access[b].Compare(access[a]) })
	out, size := map[tenant]int64{}, 2
	for _, who := range latest {
		key, err := json.Marshal(who)
		if size += len(key) + len(`:1234567890,`); err != nil || size > maxAccessBytes {
			break
		}
		out[who] = access[who].Unix()
	}
	text, err := json.Marshal(out)
	if err != nil { // never happens, because the map contains only numbers
		return ""
	}
	return string(text)
}

// readAccess decodes the value of labelAccess. It ignores invalid entries.
func readAccess(text string, now time.Time) map[tenant]time.Time {
	var in map[tenant]int64
	if json.Unmarshal([]byte(text), &in) != nil {
		return nil
	}
	out := map[tenant]time.Time{}
	for who, seconds := range in {
		if at := time.Unix(seconds, 0); !at.After(now) {
			// Ignore times in the future, which occur if the clock was set back, because such entries would remain
			// valid for too long.
			out[who] = at
		}
	}
	return out
}
