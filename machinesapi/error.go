package machinesapi

import (
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
)

// CodeOfStatus returns the code that corresponds to the HTTP status of a reply without
// a code, such as a reply by an HTTP proxy in front of the broker.
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

// The texts of errors of codes unauthorized and forbidden.
const (
	UnauthorizedText = "Authenticate: token validation error" // of code unauthorized; of a token that was good the reason follows, after ": "
	ForbiddenText    = "unauthorized"                         // as the Machines API has it: the app is not the token's
	ClusterOnlyText  = "unauthorized: this takes a token of the whole cluster, and yours is of an organization or of apps"
	ReadOnlyText     = "unauthorized: the token is read-only"
	MachinesOnlyText = "unauthorized: the token is for other machines, or for machines alone"
	QuotaText        = "quota exceeded: " // begins it
)

// The texts that begin errors, where clients look for parts of them.
const (
	NoCapacityText = noRoomText + reserveText + "machine: "
	HostFullText   = "aborted: could not reserve resource for machine: "
	NoVolumeText   = "no capacity: "
	NameTakenText  = "already_exists: unique machine name violation, "

	noRoomText  = "insufficient resources available to fulfill request: "
	reserveText = "could not reserve resource for "
	PinnedText  = "insufficient resources to create new machine with existing volume '%s': "
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

// withoutPrefix undoes WithPrefix, and takes away what else only clients look for:
// people see the code elsewhere, and read each fact once.
func withoutPrefix(code bourse.Code, text string) string {
	text = strings.TrimPrefix(text, prefixes[code])
	for _, lead := range []string{NoVolumeText, noRoomText, NameTakenText} {
		text = strings.TrimPrefix(text, lead)
	}
	if rest, ok := strings.CutPrefix(text, reserveText); ok {
		if _, after, ok := strings.Cut(rest, ": "); ok { // what it was for
			text = after
		}
	}
	return text
}
