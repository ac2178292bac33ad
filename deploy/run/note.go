package run

import (
	"bytes"
	"encoding/json"

	"github.com/bourse-dev/bourse"
)

// Note describes the outcome of a release, in its metadata.
type Note struct {
	By   string     `json:"by,omitempty"`   // the owner of the run
	Why  string     `json:"why,omitempty"`  // it failed, or was interrupted
	Left []Leftover `json:"left,omitempty"` // what could not be undone
	More int        `json:"more,omitempty"` // items that did not fit into Left
}

// noteKey is the key of the [Note] in a release's metadata.
const noteKey = "bourse_run"

// Bounds of a release's metadata, in bytes.
const (
	maxMetadata = 64 << 10 // the limit of the API
	maxNote     = 7 << 10
	maxNoteText = 1 << 10 // of each of its texts
)

// noted returns a release's metadata with a note added, cut to the available size. Other members stay as they are. It
// returns CodeFailedPrecondition if another client has stored something other than a JSON object.
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

// object encodes members without HTML escapes, which would need more space.
func object(members map[string]json.RawMessage) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(members); err != nil {
		return nil, bourse.Errorf(bourse.CodeInternal, "encode a release's metadata: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// within returns the note as JSON of at most so many bytes, with fewer items if necessary, nil if nothing fits.
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

// cut shortens a text. It may cut a character in half, which JSON then replaces.
func cut(s string) string { return s[:min(len(s), maxNoteText)] }
