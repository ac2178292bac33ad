package machinesapi

import (
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
)

// CodeOfStatus returns the error code for an HTTP status. Use it if the reply does not contain a
// code, for example because it comes from an HTTP proxy in front of the broker.
func CodeOfStatus(status int) bourse.Code {
	switch status {
	case http.StatusConflict:
		return bourse.CodeConflict
	case http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusMethodNotAllowed:
		return bourse.CodeInvalid
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		// An HTTP proxy that timed out cannot tell whether the server has executed the request.
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
	// StatusVolumePlacement means that there is no capacity for a volume, or for a machine that mounts one.
	StatusVolumePlacement ErrorStatus = "volume_placement_capacity"
)

// ErrorBody is the body of every reply with a status above 299.
type ErrorBody struct {
	Error  string      `json:"error"` // for people, although clients search it for certain phrases
	Status ErrorStatus `json:"status"`
	Code   bourse.Code `json:"code,omitempty"`

	OrderID   bourse.OrderID   `json:"order_id,omitempty"` // set in the reply to a create request whose order was not filled
	Refusals  []bourse.Refusal `json:"refusals,omitempty"` // the refusals of all workers that refused the order
	RequestID string           `json:"request_id,omitempty"`
}

// NoAppText is the error text for an app that does not exist. Machines API clients compare the
// whole text.
const NoAppText = "app not found"

// Texts of errors with code unauthorized or forbidden.
const (
	UnauthorizedText = "Authenticate: token validation error" // the token is missing or invalid; followed by ": " and the reason if it was valid earlier
	// ForbiddenText means that the token is not valid for the app. It is the Machines API's text.
	ForbiddenText    = "unauthorized"
	ClusterOnlyText  = "unauthorized: this requires a token for the whole cluster, but yours is limited to an organization or apps"
	ReadOnlyText     = "unauthorized: the token is read-only"
	MachinesOnlyText = "unauthorized: the token permits only requests about its own machines"
	QuotaText        = "quota exceeded: " // followed by a description of the exceeded quota
)

// Prefixes of error texts. Clients search error texts for parts of these prefixes.
const (
	NoCapacityText = noRoomText + reserveText + "machine: "
	HostFullText   = "aborted: could not reserve resource for machine: "
	NoVolumeText   = "no capacity: "
	NameTakenText  = "already_exists: unique machine name violation, "

	noRoomText  = "insufficient resources available to fulfill request: "
	reserveText = "could not reserve resource for "
	PinnedText  = "insufficient resources to create new machine with existing volume '%s': "
)

// prefixes contains the prefixes that Machines API clients expect in errors about machines.
var prefixes = map[bourse.Code]string{
	bourse.CodeNotFound:           "not_found: ",
	bourse.CodeFailedPrecondition: "failed_precondition: ",
	bourse.CodeTimeout:            "deadline_exceeded: ",
	bourse.CodeInsufficient:       HostFullText,
}

// WithPrefix adds the Machines API's prefix for a code to the text of an error about a machine. It returns the text
// unchanged if the code has no prefix or the text already begins with it.
func WithPrefix(code bourse.Code, text string) string {
	prefix := prefixes[code]
	if strings.HasPrefix(text, prefix) {
		return text
	}
	return prefix + text
}

// withoutPrefix removes the prefix that WithPrefix adds, which would repeat the code, and other
// parts of the text that are meant only for programs.
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
