package machinesapi

import (
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
)

// CodeOfStatus returns the code for the HTTP status of a reply that contains no code, such as the
// reply of an HTTP proxy in front of the broker.
func CodeOfStatus(status int) bourse.Code {
	switch status {
	case http.StatusConflict:
		return bourse.CodeConflict
	case http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusMethodNotAllowed:
		return bourse.CodeInvalid
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		// A proxy that timed out does not know whether the server has executed the request.
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

// Status words that clients of the Machines API recognize.
const (
	StatusUnknown              ErrorStatus = "unknown"
	StatusInsufficientCapacity ErrorStatus = "insufficient_capacity"
	StatusNameTaken            ErrorStatus = "name_taken"
	StatusVolumePlacement      ErrorStatus = "volume_placement_capacity" // for orders of volumes, and for orders of machines with volumes
)

// ErrorBody is the body of every reply with a status above 299.
type ErrorBody struct {
	Error  string      `json:"error"` // meant for people, although clients search it for certain phrases
	Status ErrorStatus `json:"status"`
	Code   bourse.Code `json:"code,omitempty"`

	OrderID   bourse.OrderID   `json:"order_id,omitempty"` // in the reply to a create request whose order was not filled
	Refusals  []bourse.Refusal `json:"refusals,omitempty"` // the refusals of all workers that refused the order
	RequestID string           `json:"request_id,omitempty"`
}

// NoAppText is the text of the error for a missing app. Clients of the Machines API compare the
// whole text.
const NoAppText = "app not found"

// Texts of errors with code unauthorized or forbidden.
const (
	UnauthorizedText = "Authenticate: token validation error" // for unauthorized; followed by ": " and the reason if the token was valid earlier
	ForbiddenText    = "unauthorized"                         // the token is not valid for the app; the Machines API uses the same text
	ClusterOnlyText  = "unauthorized: this requires a token for the whole cluster, but yours is for an organization or apps"
	ReadOnlyText     = "unauthorized: the token is read-only"
	MachinesOnlyText = "unauthorized: the token is for other machines, or only for machines"
	QuotaText        = "quota exceeded: " // followed by a description of the exceeded quota
)

// Prefixes of errors. Clients search errors for parts of these texts.
const (
	NoCapacityText = noRoomText + reserveText + "machine: "
	HostFullText   = "aborted: could not reserve resource for machine: "
	NoVolumeText   = "no capacity: "
	NameTakenText  = "already_exists: unique machine name violation, "

	noRoomText  = "insufficient resources available to fulfill request: "
	reserveText = "could not reserve resource for "
	PinnedText  = "insufficient resources to create new machine with existing volume '%s': "
)

// prefixes contains the prefixes of errors about machines, which clients of the Machines API
// expect.
var prefixes = map[bourse.Code]string{
	bourse.CodeNotFound:           "not_found: ",
	bourse.CodeFailedPrecondition: "failed_precondition: ",
	bourse.CodeTimeout:            "deadline_exceeded: ",
	bourse.CodeInsufficient:       HostFullText,
}

// WithPrefix adds the prefix that the Machines API uses with a code to the text of an error about
// a machine. If there is no prefix for the code, or the text already begins with it, WithPrefix
// returns the text unchanged.
func WithPrefix(code bourse.Code, text string) string {
	prefix := prefixes[code]
	if strings.HasPrefix(text, prefix) {
		return text
	}
	return prefix + text
}

// withoutPrefix removes the prefix that WithPrefix adds, and other text that only clients search
// for. The code is shown to people separately.
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
