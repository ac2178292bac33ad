package image

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// An image on a worker is available only to askers to which its registry has shown it. The
// catalog stores these askers and the times. They are also stored in a label of the image's
// record (labelShown), for the next daemon.

const (
	maxShown      = 8192               // maximum number of combinations of image and asker in memory
	maxShownBytes = 3 << 10            // maximum size of the label; containerd limits key and value to 4096 bytes
	shownFor      = 7 * 24 * time.Hour // how long an image counts as shown while the registry cannot be reached
)

// shownTo identifies an image, by its record's name, and an asker.
type shownTo struct {
	name string
	who  asker
}

// show records that an image was shown to an asker.
func (c *catalog) show(name string, who asker, now time.Time) {
	remember(c.shown, maxShown, shownTo{name, who}, now)
	if r, ok := c.records[name]; ok {
		r.dirty = true
	}
}

// forgetShown removes the information that a repository's images were shown to an asker. It is
// called when the registry refuses to show one of them.
func (c *catalog) forgetShown(ref bourse.ImageRef, who asker) {
	for key := range c.shown {
		other := bourse.ParseImageRef(key.name)
		if key.who != who || other.Registry != ref.Registry || other.Repository != ref.Repository {
			continue
		}
		delete(c.shown, key)
		if r, ok := c.records[key.name]; ok {
			r.dirty = true
		}
	}
}

// wasShown reports whether an image was shown to an asker within the given time.
func (c *catalog) wasShown(name string, who asker, within time.Duration, now time.Time) bool {
	at, ok := c.shown[shownTo{name, who}]
	return ok && !at.After(now) && now.Sub(at) < within
}

// askers returns the askers to which an image was shown, with the times.
func (c *catalog) askers(name string) map[asker]time.Time {
	out := map[asker]time.Time{}
	for key, at := range c.shown {
		if key.name == name {
			out[key.who] = at
		}
	}
	return out
}

// writeShown encodes the label. If the label becomes too large, it omits the oldest entries; the
// registry must then show the image to those askers again.
func writeShown(shown map[asker]time.Time) string {
	latest := slices.SortedFunc(maps.Keys(shown), func(a, b asker) int { return shown[b].Compare(shown[a]) })
	out, size := map[asker]int64{}, 2
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
func readShown(text string, now time.Time) map[asker]time.Time {
	var in map[asker]int64
	if json.Unmarshal([]byte(text), &in) != nil {
		return nil
	}
	out := map[asker]time.Time{}
	for who, seconds := range in {
		if at := time.Unix(seconds, 0); !at.After(now) { // a time in the future, after the clock was set back, would keep the entry forever
			out[who] = at
		}
	}
	return out
}
