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
		// A proxy that timed out does not know whether the server had started.
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

// Values that clients of the Machines API know.
const (
	StatusUnknown              ErrorStatus = "unknown"
	StatusInsufficientCapacity ErrorStatus = "insufficient_capacity"
	StatusNameTaken            ErrorStatus = "name_taken"
	StatusVolumePlacement      ErrorStatus = "volume_placement_capacity" // for a volume, or for a machine with a volume
)

// ErrorBody is the body of every reply with a status above 299.
type ErrorBody struct {
	Error  string      `json:"error"` // for people; clients match parts of it
	Status ErrorStatus `json:"status"`
	Code   bourse.Code `json:"code,omitempty"`

	OrderID   bourse.OrderID   `json:"order_id,omitempty"` // of a create request that was not filled
	Refusals  []bourse.Refusal `json:"refusals,omitempty"` // the reasons, worker by worker
	RequestID string           `json:"request_id,omitempty"`
}

// Texts of errors with the codes unauthorized and forbidden.
const (
	UnauthorizedText = "Authenticate: token validation error" // for unauthorized; if the token was once valid, the reason follows after ": "
	ForbiddenText    = "unauthorized"                         // as in the Machines API: the token is not valid for the app
	ClusterOnlyText  = "unauthorized: this requires a token for the whole cluster, but yours is for an organization or apps"
	ReadOnlyText     = "unauthorized: the token is read-only"
	MachinesOnlyText = "unauthorized: the token is for other machines, or only for machines"
	QuotaText        = "quota exceeded: " // prefix
)

// Prefixes of errors. Clients search for parts of them.
const (
	NoCapacityText = noRoomText + reserveText + "machine: "
	HostFullText   = "aborted: could not reserve resource for machine: "
	NoVolumeText   = "no capacity: "
	NameTakenText  = "already_exists: unique machine name violation, "

	noRoomText  = "insufficient resources available to fulfill request: "
	reserveText = "could not reserve resource for "
	PinnedText  = "insufficient resources to create new machine with existing volume '%s': "
)

// prefixes are the prefixes of errors about machines that clients of the Machines API expect.
var prefixes = map[bourse.Code]string{
	bourse.CodeNotFound:           "not_found: ",
	bourse.CodeFailedPrecondition: "failed_precondition: ",
	bourse.CodeTimeout:            "deadline_exceeded: ",
	bourse.CodeInsufficient:       HostFullText,
}

// WithPrefix adds the Machines API's prefix for a code to the text of an error about a machine. It returns the text
// unchanged if it already has the prefix or the API has none.
func WithPrefix(code bourse.Code, text string) string {
	prefix := prefixes[code]
	if strings.HasPrefix(text, prefix) {
		return text
	}
	return prefix + text
}

// withoutPrefix reverses WithPrefix, and removes other text that only clients search for. People see the code
// separately.
func withoutPrefix(code bourse.Code, text string) string {
	text = strings.TrimPrefix(text, prefixes[code])
	for _, lead := range []string{NoVolumeText, noRoomText, NameTakenText} {
		text = strings.TrimPrefix(text, lead)
	}
	if rest, ok := strings.CutPrefix(text, reserveText); ok {
		if _, after, ok := strings.Cut(rest, ": "); ok { // skip the object's name
			text = after
		}
	}
	return text
}
