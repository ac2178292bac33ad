package image

import (
	"slices"
	"strings"
	"time"
)

// diskUser is something that occupies disk space: an image, a pull in progress, or the data of a failed pull.
type diskUser struct {
	name   string
	digest string // digest of an image, to check whether a machine uses it; otherwise empty
	parts  parts
	usedAt time.Time
	inUse  bool // in use or being pulled, and therefore not evictable
}

// diskUsage returns the total size of the holdings. It counts shared parts once.
func diskUsage(holdings []diskUser) int64 {
	all := parts{}
	for _, h := range holdings {
		for name, size := range h.parts {
			all[name] = max(all[name], size)
		}
	}
	return all.sum()
}

// selectEvictions returns the names of the holdings to evict so that the remaining holdings occupy at most budget
// bytes. It selects the least recently used holdings first, and does not select those in use. It also returns the total
// size of the remaining holdings. This size exceeds the budget if evicting everything that is not in use would not
// suffice.
func selectEvictions(holdings []diskUser, budget int64) ([]string, int64) {
	holders := map[string]int{} // number of holdings that contain each part
	sizes := parts{}
	for _, h := range holdings {
		for name, size := range h.parts {
			holders[name]++
			sizes[name] = max(sizes[name], size)
		}
	}
	used := sizes.sum()
	order := slices.Clone(holdings)
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
