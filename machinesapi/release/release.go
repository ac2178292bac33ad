// Package release defines the record of a deploy. The record describes the deployed configuration, the user who
// deployed it, and the outcome. Each record has a unique ID, so two brokers never write the same record. The order of
// an app's records determines the releases' versions.
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

// ID identifies a release. It is a ULID.
type ID string

// NewID returns a new ID. IDs sort by creation time.
func NewID() ID { return ID(ulid.Make().String()) }

// Validate returns an error with [bourse.CodeInvalid] if id is not a ULID in upper case.
func (id ID) Validate() error {
	if _, err := ulid.ParseStrict(string(id)); err != nil || string(id) != strings.ToUpper(string(id)) {
		return bourse.Errorf(bourse.CodeInvalid, "invalid release id %s", bourse.Quoted(string(id)))
	}
	return nil
}

// Status is the state of a deploy, as reported by the deploying client.
type Status string

// Statuses of a release.
const (
	Pending     Status = "pending"
	Running     Status = "running"
	Complete    Status = "complete"
	Failed      Status = "failed"
	Interrupted Status = "interrupted"
)

var statuses = []Status{Pending, Running, Complete, Failed, Interrupted}

// Release is the record of one deploy of an app.
type Release struct {
	ID    ID             `json:"id"`
	App   bourse.AppName `json:"app"`
	AppID string         `json:"app_id"`
	// One more than the latest version known to the broker when it created the record; see [Number].
	Version     int64           `json:"version"`
	Status      Status          `json:"status"`
	Strategy    string          `json:"strategy,omitempty"`
	Description string          `json:"description,omitempty"`
	Image       string          `json:"image_ref,omitempty"`
	Definition  json.RawMessage `json:"definition,omitempty"` // the app's configuration, exactly as the client sent it
	Metadata    json.RawMessage `json:"metadata,omitempty"`   // additional data from the client
	User        string          `json:"user,omitempty"`       // name of the user who owns the client's token
	CreatedAt   time.Time       `json:"created_at"`
	UpdatedAt   time.Time       `json:"updated_at"`
}

// Limits for a release's fields, in bytes.
const (
	maxText       = 1 << 10
	maxDefinition = 64 << 10
)

// Validate returns an error with [bourse.CodeInvalid] if a field of r is invalid.
func (r *Release) Validate() error {
	if err := r.ID.Validate(); err != nil {
		return err
	}
	if !slices.Contains(statuses, r.Status) {
		return bourse.Errorf(bourse.CodeInvalid, "invalid status %s: use pending, running, complete, failed or interrupted", bourse.Quoted(string(r.Status)))
	}
	for name, text := range map[string]string{"strategy": r.Strategy, "description": r.Description, "image": r.Image} {
		if len(text) > maxText {
			return bourse.Errorf(bourse.CodeInvalid, "invalid %s: %d bytes exceed the limit of %d", name, len(text), maxText)
		}
	}
	for name, raw := range map[string]json.RawMessage{"definition": r.Definition, "metadata": r.Metadata} {
		if len(raw) > maxDefinition {
			return bourse.Errorf(bourse.CodeInvalid, "invalid %s: %d bytes of JSON exceed the limit of %d", name, len(raw), maxDefinition)
		}
	}
	return nil
}

// Number sorts an app's releases, oldest first, and sets the versions that users see. A release keeps the version that
// its broker chose if that version is greater than the previous release's. Otherwise, two brokers have chosen the same
// version, and the later release gets the next version. Versions always increase, and removing the oldest releases does
// not change other releases' versions.
func Number(list []Release) {
	slices.SortFunc(list, func(a, b Release) int { return cmp.Compare(a.ID, b.ID) })
	last := int64(0)
	for i := range list {
		last = max(last+1, min(list[i].Version, maxVersion))
		list[i].Version = last
	}
}

// maxVersion limits the version in a record, to leave room for the versions of later releases.
const maxVersion = 1 << 31

// Next returns the version of an app's next release. list must have been numbered with [Number].
func Next(list []Release) int64 {
	if len(list) == 0 {
		return 1
	}
	return list[len(list)-1].Version + 1
}
