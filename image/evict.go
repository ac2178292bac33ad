package image

import (
	"slices"
	"strings"
	"time"
)

// holding is something that takes disk: an image, a pull in progress, or what a
// failed pull has left for a retry.
type holding struct {
	name   string
	digest string // of an image that a machine may have; else empty
	parts  parts
	usedAt time.Time
	fixed  bool // must not be evicted: in use, or being pulled
}

// usage sums up what holdings take, what they share once.
func usage(holdings []holding) int64 {
	all := parts{}
	for _, h := range holdings {
		for name, size := range h.parts {
			all[name] = max(all[name], size)
		}
	}
	return all.sum()
}

// victims chooses what to evict so that the rest takes at most budget bytes: the
// least recently used first, and none whose going frees nothing. The second
// result is what the rest takes; when that is more than the budget there is no
// use in evicting at all.
func victims(holdings []holding, budget int64) ([]string, int64) {
	holders := map[string]int{} // of each part
	sizes := parts{}
	for _, h := range holdings {
		for name, size := range h.parts {
			holders[name]++
			sizes[name] = max(sizes[name], size)
		}
	}
	used := sizes.sum()
	order := slices.Clone(holdings)
	slices.SortFunc(order, func(a, b holding) int {
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
		if h.fixed {
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
