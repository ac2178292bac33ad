package machinesapi

import (
	"encoding/json"

	"github.com/bourse-dev/bourse/machinesapi/release"
)

// CreateRelease is the body of a request that records a deployment.
type CreateRelease struct {
	Status      release.Status  `json:"status,omitempty"`   // default pending
	Strategy    string          `json:"strategy,omitempty"` // stored in lower case
	Description string          `json:"description,omitempty"`
	Image       string          `json:"image_ref,omitempty"`
	Definition  json.RawMessage `json:"definition,omitempty"` // an object
	Metadata    json.RawMessage `json:"metadata,omitempty"`   // an object
}

// ChangeRelease is the body of a request that records a deployment's progress. Omitted fields do not change.
type ChangeRelease struct {
	Status   release.Status  `json:"status,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"` // an object
}

// ReleaseList is the reply with an app's releases, newest first.
type ReleaseList struct {
	Releases []release.Release `json:"releases"`
}
