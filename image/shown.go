package image

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// An image that a worker has is its askers' to whom its registry has shown it,
// and no one else's: the catalogue remembers whom, and when. The label labelShown
// of the image's record keeps that for the next daemon.

const (
	maxShown      = 8192               // images times askers, in memory
	maxShownBytes = 3 << 10            // of the label; containerd takes 4096 with its key
	shownFor      = 7 * 24 * time.Hour // how long an answer counts while the registry cannot be reached
)

// shownTo is an image, by the name of its record, and an asker that its registry showed it to.
type shownTo struct {
	name string
	who  asker
}

// show notes that an image was shown to an asker.
func (c *catalogue) show(name string, who asker, now time.Time) {
	remember(c.shown, maxShown, shownTo{name, who}, now)
	if r, ok := c.records[name]; ok {
		r.dirty = true
	}
}

// hide removes what was shown of an image's repository to an asker: the registry
// no longer shows it.
func (c *catalogue) hide(ref bourse.ImageRef, who asker) {
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

// wasShown reports whether an image was shown to an asker within a time.
func (c *catalogue) wasShown(name string, who asker, within time.Duration, now time.Time) bool {
	at, ok := c.shown[shownTo{name, who}]
	return ok && !at.After(now) && now.Sub(at) < within
}

// askers returns the askers that an image was shown to.
func (c *catalogue) askers(name string) map[asker]time.Time {
	out := map[asker]time.Time{}
	for key, at := range c.shown {
		if key.name == name {
			out[key.who] = at
		}
	}
	return out
}

// writeShown encodes the label, without those that are beyond its size: the
// earliest, to which the image must then be shown again.
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
	if err != nil { // a map of numbers has a form
		return ""
	}
	return string(text)
}

// readShown decodes the label. What cannot be read was shown to no one.
func readShown(text string, now time.Time) map[asker]time.Time {
	var in map[asker]int64
	if json.Unmarshal([]byte(text), &in) != nil {
		return nil
	}
	out := map[asker]time.Time{}
	for who, seconds := range in {
		if at := time.Unix(seconds, 0); !at.After(now) { // a clock that was set back must not keep it forever
			out[who] = at
		}
	}
	return out
}
