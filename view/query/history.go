package query

import (
	"slices"

	"github.com/bourse-dev/bourse"
)

// history contains a subscription's latest changes, encoded as lines.
type history struct {
	limit int // maximum size in bytes
	first int64
	lines [][]byte // consecutive changes, starting with number first
	bytes int
}

// lineOverhead is the memory that a line needs in addition to its bytes.
const lineOverhead = 32

// add appends the line of the next change. If the limit is exceeded, it drops the oldest changes.
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

// last returns the number of the latest change.
func (h *history) last() int64 { return h.first + int64(len(h.lines)) - 1 }

// after returns the changes that follow change n, up to and including the one with which they exceed maxBytes in total.
// The caller must not modify them. Errors: invalid if change n does not exist, not_found if the changes after n are no
// longer available.
func (h *history) after(n int64, maxBytes int) ([][]byte, error) {
	switch {
	case n > h.last() || n < 0:
		return nil, bourse.Errorf(bourse.CodeInvalid, "change %d does not exist: the latest one is %d", n, h.last())
	case n+1 < h.first:
		return nil, bourse.Errorf(bourse.CodeNotFound, "the changes after %d are no longer available: subscribe again", n)
	}
	rest := h.lines[n+1-h.first:]
	for i, line := range rest {
		if maxBytes -= len(line); maxBytes < 0 {
			return rest[: i+1 : i+1], nil
		}
	}
	return slices.Clone(rest), nil
}

// nearlyDropped reports whether the change after change n will soon be dropped. This is the case if the
// history is nearly full and that change is in its oldest quarter.
func (h *history) nearlyDropped(n int64) bool {
	return h.bytes > h.limit*3/4 && n+1 < h.first+int64(len(h.lines)/4)
}
