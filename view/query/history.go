package query

import (
	"slices"

	"github.com/bourse-dev/bourse"
)

// history keeps the newest changes of a subscription, as lines.
type history struct {
	limit int // bytes
	first int64
	lines [][]byte // of the changes first, first+1, …
	bytes int
}

// lineOverhead is what a kept line costs beside its bytes.
const lineOverhead = 32

// add appends the next change; the oldest go when there is no room.
func (h *history) add(line []byte) {
	h.lines = append(h.lines, line)
	h.bytes += len(line) + lineOverhead
	drop := 0
	for h.bytes > h.limit && drop < len(h.lines) {
		h.bytes -= len(h.lines[drop]) + lineOverhead
		drop++
	}
	clear(h.lines[:drop])
	h.lines = h.lines[drop:]
	h.first += int64(drop)
}

// last is the newest change's number.
func (h *history) last() int64 { return h.first + int64(len(h.lines)) - 1 }

// after returns some changes after number n, at most about most bytes. They are
// not to be changed. Codes: invalid (there was no such change), not_found (the
// changes after n are not kept any more).
func (h *history) after(n int64, most int) ([][]byte, error) {
	switch {
	case n > h.last() || n < 0:
		return nil, bourse.Errorf(bourse.CodeInvalid, "there is no change %d yet: the last one is %d", n, h.last())
	case n+1 < h.first:
		return nil, bourse.Errorf(bourse.CodeNotFound, "the changes after %d are not kept any more: subscribe again", n)
	}
	rest := h.lines[n+1-h.first:]
	for i, line := range rest {
		if most -= len(line); most < 0 {
			return rest[: i+1 : i+1], nil
		}
	}
	return slices.Clone(rest), nil
}

// nearEnd reports whether the change after n will soon be dropped: it stands in
// the oldest quarter of a history that is nearly full.
func (h *history) nearEnd(n int64) bool {
	return h.bytes > h.limit*3/4 && n+1 < h.first+int64(len(h.lines)/4)
}
