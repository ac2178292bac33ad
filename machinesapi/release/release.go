// Package release knows what a deploy leaves behind: one record of what an app
// was deployed as, by whom, and how it went. Records have ids of their own, so no
// two brokers write the same one; their versions follow from their order.
package release

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/bourse-dev/bourse"
)

// ID is the id of a release: a ULID.
type ID string

// NewID makes one.
func NewID() ID { return ID(ulid.Make().String()) }

// Validate reports CodeInvalid for what is no id.
func (id ID) Validate() error {
	if _, err := ulid.ParseStrict(string(id)); err != nil || string(id) != strings.ToUpper(string(id)) {
		return bourse.Errorf(bourse.CodeInvalid, "invalid release id %s", bourse.Quoted(string(id)))
	}
	return nil
}

// Status is how a deploy goes, as its client says.
type Status string

// The statuses of a release.
const (
	Pending     Status = "pending"
	Running     Status = "running"
	Complete    Status = "complete"
	Failed      Status = "failed"
	Interrupted Status = "interrupted"
)

var statuses = []Status{Pending, Running, Complete, Failed, Interrupted}

// Release is one of an app.
type Release struct {
	ID          ID              `json:"id"`
	App         bourse.AppName  `json:"app"`
	AppID       string          `json:"app_id"`
	Version     int64           `json:"version"` // what its broker knew to be the next; see [Number]
	Status      Status          `json:"status"`
	Strategy    string          `json:"strategy,omitempty"`
	Description string          `json:"description,omitempty"`
	Image       string          `json:"image_ref,omitempty"`
	Definition  json.RawMessage `json:"definition,omitempty"` // of the app, as its client has it
	Metadata    json.RawMessage `json:"metadata,omitempty"`   // what else its client says of the deploy
	User        string          `json:"user,omitempty"`       // whose token it was
	CreatedAt   time.Time       `json:"created_at"`
	UpdatedAt   time.Time       `json:"updated_at"`
}

// Bounds of what a release may say, in bytes.
const (
	maxText       = 1 << 10
	maxDefinition = 64 << 10
)

// Validate reports CodeInvalid for a release that no one should keep.
func (r *Release) Validate() error {
	if err := r.ID.Validate(); err != nil {
		return err
	}
	if !slices.Contains(statuses, r.Status) {
		return bourse.Errorf(bourse.CodeInvalid, "invalid status %s: use pending, running, complete, failed or interrupted", bourse.Quoted(string(r.Status)))
	}
	for name, text := range map[string]string{"strategy": r.Strategy, "description": r.Description, "image": r.Image} {
		if len(text) > maxText {
			return bourse.Errorf(bourse.CodeInvalid, "invalid %s: %d bytes, at most %d", name, len(text), maxText)
		}
	}
	for name, raw := range map[string]json.RawMessage{"definition": r.Definition, "metadata": r.Metadata} {
		if len(raw) > maxDefinition {
			return bourse.Errorf(bourse.CodeInvalid, "invalid %s: %d bytes of JSON, at most %d", name, len(raw), maxDefinition)
		}
	}
	return nil
}

// Number puts the releases of one app in order, oldest first, and gives each the
// version that everyone sees: what its broker gave it, or the one after the
// release before it where two brokers gave the same. So versions only grow, and those
// that stay keep theirs when the oldest go.
func Number(list []Release) {
	slices.SortFunc(list, func(a, b Release) int { return cmp.Compare(a.ID, b.ID) })
	last := int64(0)
	for i := range list {
		last = max(last+1, min(list[i].Version, maxVersion))
		list[i].Version = last
	}
}

// maxVersion bounds what a record may make of the versions after it.
const maxVersion = 1 << 31

// Next returns the version of a release made after these, which are numbered.
func Next(list []Release) int64 {
	if len(list) == 0 {
		return 1
	}
	return list[len(list)-1].Version + 1
}
