package bourse

import (
	"crypto/sha256"
	"slices"
	"strconv"
)

// TagChoices is how many tags a worker may have: more than one, because two
// workers' ids may lead to the same.
const TagChoices = 4

// Tags returns the tags that the worker with this id may have, in the order in
// which it takes the first that is free. They follow from the id, so that what
// proves an id proves a tag, with nothing to be written down or agreed upon.
func (w WorkerID) Tags() [TagChoices]WorkerTag {
	var out [TagChoices]WorkerTag
	for i := range out {
		h := sha256.Sum256([]byte("bourse worker tag\x00" + string(w) + "\x00" + strconv.Itoa(i)))
		out[i] = max(1, WorkerTag(h[0])<<16|WorkerTag(h[1])<<8|WorkerTag(h[2]))
	}
	return out
}

// TagRank returns how well a tag belongs to a worker: the place among those it
// may have, from 0, or TagChoices when it is none of them.
func (w WorkerID) TagRank(tag WorkerTag) int {
	tags := w.Tags()
	if i := slices.Index(tags[:], tag); i >= 0 {
		return i
	}
	return TagChoices
}
