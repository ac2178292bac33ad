package cli

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// refusalHints maps the reasons of workers' refusals to the command that helps. A reason
// has no entry if the refusal's own text says everything, or if the help depends on
// facts that the command line does not know. WORKER stands for the refusing worker.
var refusalHints = []struct {
	reason   bourse.RefusalReason
	resource string // "" for any
	command  string
}{
	{bourse.RefusedLabel, "", "bourse worker show WORKER"},
	{bourse.RefusedCordoned, "", "bourse worker uncordon WORKER"},
	{bourse.RefusedImage, bourse.ImagePull, "bourse serve worker --pull"},
	{bourse.RefusedImage, bourse.ImageHost, "bourse serve worker --allow-host"},
	{bourse.RefusedReservation, "", "bourse reservation create"},
	{bourse.RefusedNoAnswer, "", "bourse worker list"},
}

// AfterRefusals returns the commands that help after an order was refused, at most one
// for each reason.
func AfterRefusals(refusals []bourse.Refusal) []string {
	var out []string
	for _, h := range refusalHints {
		i := slices.IndexFunc(refusals, func(r bourse.Refusal) bool {
			return r.Reason == h.reason && (h.resource == "" || r.Resource == h.resource)
		})
		if i >= 0 {
			out = append(out, strings.ReplaceAll(h.command, "WORKER", cmp.Or(string(refusals[i].Worker), "WORKER")))
		}
	}
	return out
}

// hintsOf returns the hints for err: those that its command added, or those that follow
// from its cause, its code, or the workers' refusals.
func (s *Shell) hintsOf(err error) []string {
	if hints := Hints(err); hints != nil {
		return hints
	}
	reply, replied := errors.AsType[*machinesapi.ReplyError](err)
	if !replied {
		return s.hintOfCause(err)
	}
	switch code := bourse.CodeOf(err); {
	case code == bourse.CodeUnauthorized && s.credential() == "":
		return []string{"--token TOKEN or BOURSE_API_TOKEN"}
	case code == bourse.CodeUnauthorized:
		return []string{"another --token or BOURSE_API_TOKEN; another --api or BOURSE_API (now " + s.baseURL() + ")"}
	case code == bourse.CodeForbidden && strings.HasPrefix(bourse.MessageOf(err), machinesapi.ForbiddenText):
		return []string{"another --token or BOURSE_API_TOKEN"}
	}
	hints := AfterRefusals(reply.Refusals)
	if reply.OrderID != "" {
		hints = append(hints, "bourse order show "+string(reply.OrderID))
	}
	return hints
}

// hintOfCause returns the hints for errors below the API.
func (s *Shell) hintOfCause(err error) []string {
	_, untrusted := errors.AsType[x509.UnknownAuthorityError](err)
	_, misnamed := errors.AsType[x509.HostnameError](err)
	lookup, unresolved := errors.AsType[*net.DNSError](err)
	_, ofAPI := errors.AsType[*machinesapi.NoReplyError](err)
	switch {
	case errors.Is(err, context.Canceled):
		return nil
	case !ofAPI: // from a registry or another server, which --api does not choose
		return nil
	case errors.Is(err, syscall.ECONNREFUSED):
		return []string{
			"bourse dev, to start a cluster on this host",
			"another --api or BOURSE_API (now " + s.baseURL() + ")",
		}
	case unresolved && lookup.IsNotFound, misnamed:
		return []string{"another --api or BOURSE_API (now " + s.baseURL() + ")"}
	case errors.Is(err, http.ErrSchemeMismatch):
		return []string{"--api " + otherScheme(s.baseURL())}
	case untrusted:
		return []string{"--ca FILE or BOURSE_CA, with the CA of the API's certificate"}
	}
	return nil
}

// otherScheme returns the address with http instead of https, or the reverse.
func otherScheme(api string) string {
	if rest, ok := strings.CutPrefix(api, "https://"); ok {
		return "http://" + rest
	}
	_, rest, ok := strings.Cut(api, "://")
	if !ok {
		rest = api
	}
	return "https://" + rest
}
