package run

import (
	"bytes"
	"encoding/json"

	"github.com/bourse-dev/bourse"
)

// Note is what a release says of how it went.
type Note struct {
	By   string     `json:"by,omitempty"`   // who deploys
	Why  string     `json:"why,omitempty"`  // it failed
	Left []Leftover `json:"left,omitempty"` // what could not be returned
	More int        `json:"more,omitempty"` // of that, for which there is no room
}

// noteKey is where a release's metadata has a [Note].
const noteKey = "bourse_run"

// Bounds of a release's metadata, in bytes.
const (
	maxMetadata = 64 << 10 // that the API takes
	maxNote     = 7 << 10
	maxNoteText = 1 << 10 // of each of its texts
)

// noted returns a release's metadata with a note in it; what else that says stays as it is. The note is cut
// to what there is room for. CodeFailedPrecondition: the metadata is another client's, and no JSON object.
func noted(metadata json.RawMessage, note Note) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if len(metadata) > 0 {
		if err := json.Unmarshal(metadata, &members); err != nil {
			return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "the release's metadata is not a JSON object: %w", err)
		}
	}
	if members == nil { // it was null
		members = map[string]json.RawMessage{}
	}
	delete(members, noteKey)
	others, err := object(members)
	if err != nil {
		return nil, err
	}
	text := note.within(min(maxNote, maxMetadata-len(others)-len(noteKey)-len(`"":,`)))
	if text == nil {
		return others, nil
	}
	members[noteKey] = text
	return object(members)
}

// object spells members as they came: what HTML would have escaped takes no more room.
func object(members map[string]json.RawMessage) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(members); err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "encode a release's metadata: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// within returns the note as JSON of at most so many bytes, without what is too much; nil where nothing fits.
func (n Note) within(room int) json.RawMessage {
	n.By, n.Why = cut(n.By), cut(n.Why)
	left := n.Left
	for keep := len(left); ; keep /= 2 {
		n.Left, n.More = left[:keep], n.More+len(n.Left)-keep
		text, err := json.Marshal(n)
		switch {
		case err == nil && len(text) <= room:
			return text
		case keep == 0:
			return nil
		}
	}
}

// cut bounds a text. It may end in half a character, for which JSON has a mark.
func cut(s string) string { return s[:min(len(s), maxNoteText)] }
