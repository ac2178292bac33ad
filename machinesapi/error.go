package machinesapi

import (
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
)

// StatusOf returns the HTTP status of a code; 500 for an unknown one. Three places
// of the API use another status: a name that is taken is 422, a machine that
// no longer fits on its own worker is 409, and a lack of capacity for a volume, or
// for a machine that one pins, is 412.
func StatusOf(code bourse.Code) int { return code.Status() }

// CodeOfStatus returns the code of a reply that has none, as a proxy on the
// way may write.
func CodeOfStatus(status int) bourse.Code {
	switch status {
	case http.StatusConflict:
		return bourse.CodeConflict
	case http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusMethodNotAllowed:
		return bourse.CodeInvalid
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		// A proxy that timed out cannot know whether the server had begun.
		return bourse.CodeTimeout
	}
	for _, code := range bourse.Codes() {
		if code.Status() == status {
			return code
		}
	}
	return bourse.CodeInternal
}

// ErrorStatus is the value of an error body's "status" field.
type ErrorStatus string

// The words that clients of the Machines API know.
const (
	StatusUnknown              ErrorStatus = "unknown"
	StatusInsufficientCapacity ErrorStatus = "insufficient_capacity"
	StatusNameTaken            ErrorStatus = "name_taken"
	StatusVolumePlacement      ErrorStatus = "volume_placement_capacity" // of a volume, or of the machine on one
)

// ErrorBody is the body of every reply past 299.
type ErrorBody struct {
	Error  string      `json:"error"` // for people; parts of it are matched by clients
	Status ErrorStatus `json:"status"`
	Code   bourse.Code `json:"code,omitempty"`

	OrderID   bourse.OrderID   `json:"order_id,omitempty"` // of a create that was not filled
	Refusals  []bourse.Refusal `json:"refusals,omitempty"` // why, worker by worker
	RequestID string           `json:"request_id,omitempty"`
}

// The texts that begin the errors of a lack of capacity: clients look for
// parts of them.
const (
	NoCapacityText = "insufficient resources available to fulfill request: could not reserve resource for machine: "
	HostFullText   = "aborted: could not reserve resource for machine: "
	NoVolumeText   = "no capacity: "
	PinnedText     = "insufficient resources to create new machine with existing volume '%s': "
)

// prefixes begin the texts of errors about machines, where clients of the
// Machines API are used to them.
var prefixes = map[bourse.Code]string{
	bourse.CodeNotFound:           "not_found: ",
	bourse.CodeFailedPrecondition: "failed_precondition: ",
	bourse.CodeTimeout:            "deadline_exceeded: ",
	bourse.CodeInsufficient:       HostFullText,
}

// WithPrefix writes the text of an error about a machine as the Machines API
// does, with the code's words in front. It changes nothing when they are there
// already or the API has none.
func WithPrefix(code bourse.Code, text string) string {
	prefix := prefixes[code]
	if strings.HasPrefix(text, prefix) {
		return text
	}
	return prefix + text
}

// withoutPrefix undoes WithPrefix: people see the code elsewhere.
func withoutPrefix(code bourse.Code, text string) string {
	text = strings.TrimPrefix(strings.TrimPrefix(text, prefixes[code]), NoCapacityText)
	return strings.TrimPrefix(text, NoVolumeText)
}
