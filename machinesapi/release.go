package machinesapi

import (
	"encoding/json"

	"github.com/bourse-dev/bourse/machinesapi/release"
)

// CreateRelease is the body of a request that records a deployment.
type CreateRelease struct {
	Status      release.Status  `json:"status,omitempty"`   // default pending
	Strategy    string          `json:"strategy,omitempty"` // converted to lower case
	Description string          `json:"description,omitempty"`
	Image       string          `json:"image_ref,omitempty"`
	Definition  json.RawMessage `json:"definition,omitempty"` // a JSON object
	Metadata    json.RawMessage `json:"metadata,omitempty"`   // a JSON object
}

// ChangeRelease is the body of a request that records the progress of a deployment. Omitted fields do not change.
type ChangeRelease struct {
	Status   release.Status  `json:"status,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"` // a JSON object
}

// ReleaseList is the reply to a request for an app's releases, newest first.
type ReleaseList struct {
	Releases []release.Release `json:"releases"`
}
