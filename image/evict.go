package image

import (
	"slices"
	"strings"
	"time"
)

// diskUser is something that occupies disk space: an image, a pull in progress, or the data of a failed pull.
type diskUser struct {
	name   string
	digest string // image's digest, used to check whether a machine uses the image; empty for pulls and leftover data
	parts  parts
	usedAt time.Time
	inUse  bool // in use or being pulled, and therefore not evictable
}

// diskUsage returns the total size of the given disk users. Shared parts count once.
func diskUsage(diskUsers []diskUser) int64 {
	all := parts{}
	for _, h := range diskUsers {
		for name, size := range h.parts {
			all[name] = max(all[name], size)
		}
	}
	return all.sum()
}

// selectEvictions returns the names of the disk users to evict so that the remaining ones occupy at most budget bytes,
// and the total size of the remaining ones. It selects the least recently used ones first, but never selects one that
// is in use. The returned size exceeds the budget if evicting everything that is not in use does not free enough space.
func selectEvictions(diskUsers []diskUser, budget int64) ([]string, int64) {
	holders := map[string]int{} // number of disk users that contain each part
	sizes := parts{}
	for _, h := range diskUsers {
		for name, size := range h.parts {
			holders[name]++
			sizes[name] = max(sizes[name], size)
		}
	}
	used := sizes.sum()
	order := slices.Clone(diskUsers)
	slices.SortFunc(order, func(a, b diskUser) int {
		if c := a.usedAt.Compare(b.usedAt); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	var out []string
	for _, h := range order {
		if used <= budget {
			break
		}
		if h.inUse {
			continue
		}
		for name := range h.parts {
			if holders[name]--; holders[name] == 0 {
				used -= sizes[name]
			}
		}
		out = append(out, h.name)
	}
	return out, used
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
