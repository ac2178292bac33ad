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

// advice returns what to try after an error, one thing a line; nothing where
// the error says it.
type advice func(s *Shell, err error) []string

// just is advice that is always the same.
func just(lines ...string) advice { return func(*Shell, error) []string { return lines } }

// none is for errors that say themselves what to do.
var none = just()

// hintOfCode is what to try after an error of a code, when the verb, a refusal
// or the cause (hintOfCause) does not say more.
var hintOfCode = map[bourse.Code]advice{
	bourse.CodeInvalid:            none,
	bourse.CodeUnauthorized:       hintUnauthorized,
	bourse.CodeForbidden:          hintForbidden,
	bourse.CodeNotFound:           none, // verbs know where to look
	bourse.CodeAlreadyExists:      none,
	bourse.CodeConflict:           hintConflict,
	bourse.CodeFailedPrecondition: none,
	bourse.CodeInsufficient:       just("another --region, or later; who answers: bourse worker list"),
	bourse.CodeRateLimited:        just("try again in a moment: nothing happened"),
	bourse.CodeUnavailable:        just("try again in a moment: nothing happened"),
	bourse.CodeTimeout:            just("see what became of it before you repeat: bourse machine list"),
	bourse.CodeCanceled:           none,
	bourse.CodeInternal:           hintInternal,
}

// hintOfReason is what to try after a worker's refusal, when that decided.
var hintOfReason = map[bourse.RefusalReason]func(r *bourse.Refusal) string{
	bourse.RefusedResource:    hintOfResource,
	bourse.RefusedLabel:       hintOfLabel,
	bourse.RefusedUnknown:     hintOfUnknown,
	bourse.RefusedImage:       hintOfImage,
	bourse.RefusedNoImage:     always("look at its name and tag; a private one needs workers with credentials: bourse serve worker --registry-auth FILE"),
	bourse.RefusedRegistry:    always("how workers reach a registry of your own: bourse serve worker --help (--registry-http, --registry-ca, --registry-private)"),
	bourse.RefusedProgram:     always("another command, behind --, or another image"),
	bourse.RefusedRegion:      always("another --region, or any"),
	bourse.RefusedName:        always("another --name, or see it: bourse machine list"),
	bourse.RefusedCanceled:    always("the same as a new order, with another --order-id or none"),
	bourse.RefusedVolume:      always("see who has the volume: bourse volume list"),
	bourse.RefusedZone:        always("a worker more in the region, or --no-unique-zone"),
	bourse.RefusedUnavailable: always("later, or another --region: the worker says what it lacks"),
	bourse.RefusedCordoned:    always("another --region, or let the worker take orders again: bourse worker uncordon WORKER"),
	bourse.RefusedReservation: always("the same without --reservation, or a new one: bourse reservation create"),
	bourse.RefusedDriver:      nil, // the workers report what failed
	bourse.RefusedApp:         always("make the app again: bourse app create NAME"),
	bourse.RefusedOvertaken:   nil, // the other try of the order answers
	bourse.RefusedNoAnswer:    always("see which workers answer: bourse worker list"),
	bourse.RefusedLost:        nil, // it was canceled there; the code says what to do
}

func always(line string) func(*bourse.Refusal) string {
	return func(*bourse.Refusal) string { return line }
}

// hintOfResource names the flag that asks for less of what is short.
func hintOfResource(r *bourse.Refusal) string {
	const orLater = ", another --region, or later"
	switch name := r.Resource; {
	case name == string(bourse.ResourceMemory):
		return "a smaller --vm-memory" + orLater
	case name == string(bourse.ResourceCPU):
		return "fewer --vm-cpus, or shared ones (--vm-cpu-kind)" + orLater
	case name == string(bourse.ResourceDisk):
		return "less disk (--size of a volume, --rootfs-size of a machine)" + orLater
	case strings.HasPrefix(name, string(bourse.GPUResource(""))):
		return "fewer --vm-gpus, another --vm-gpu-kind" + orLater
	case name == "pollers":
		return "a host that fetches its work (docs/pull.md): none waits at the gateway, or none with room for this"
	case name == "images":
		return "a smaller image, or room for it: bourse image prune"
	case name == "ports":
		return "a port of the machine's own (--env PORT=…), another --region, or later"
	case isTask(name):
		return hintOfTask(name) + ", or later, when a place is free"
	}
	return "a smaller --require " + r.Resource + "=…" + orLater
}

func hintOfLabel(r *bourse.Refusal) string {
	return "another --require " + r.Resource + "=…; what a worker has: bourse worker show " + cmp.Or(string(r.Worker), "WORKER")
}

func hintOfUnknown(r *bourse.Refusal) string {
	if isTask(r.Resource) {
		return hintOfTask(r.Resource)
	}
	asked := "--require " + r.Resource + "=…"
	if strings.HasPrefix(r.Resource, string(bourse.GPUResource(""))) {
		asked = "--vm-gpu-kind"
	}
	return "another --region, or without " + asked + "; what a worker has: bourse worker show " + cmp.Or(string(r.Worker), "WORKER")
}

func isTask(resource string) bool {
	return strings.HasPrefix(resource, string(bourse.TaskResource("")))
}

func hintOfTask(resource string) string {
	return "a machine that is warm for it: bourse machine run --task " + strings.TrimPrefix(resource, string(bourse.TaskResource(""))) + " IMAGE"
}

func hintOfImage(r *bourse.Refusal) string {
	switch r.Resource {
	case bourse.ImagePull:
		return "a gateway, for machines of image pull: bourse serve worker --pull"
	case bourse.ImageHost:
		return "a worker that runs commands of its host: bourse serve worker --allow-host"
	}
	return "is the image's name right? Workers that run images have containerd: bourse serve worker --help"
}

// maxHints bounds what is said after an order that many workers refused for
// different reasons.
const maxHints = 3

// AfterRefusals returns what to try when no worker has filled an order: for
// the most frequent reasons, most frequent first. Silent workers come last.
func AfterRefusals(refusals []bourse.Refusal) []string {
	type counted struct {
		line   string
		silent bool
		n      int
	}
	var list []counted
	for i := range refusals {
		shortages := refusals[i].Shortages()
		for j := range shortages {
			r := &shortages[j]
			hint := hintOfReason[r.Reason]
			if hint == nil {
				continue
			}
			line := hint(r)
			k := slices.IndexFunc(list, func(c counted) bool { return head(c.line) == head(line) })
			if k < 0 {
				list, k = append(list, counted{line: line, silent: r.Reason == bourse.RefusedNoAnswer}), len(list)
			}
			list[k].n++
		}
	}
	slices.SortStableFunc(list, func(a, b counted) int {
		if a.silent != b.silent {
			return cmp.Compare(btoi(a.silent), btoi(b.silent))
		}
		return cmp.Compare(b.n, a.n)
	})
	var out []string
	for _, c := range list[:min(len(list), maxHints)] {
		out = append(out, c.line)
	}
	return out
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// head is a hint without what names a worker, of which there may be many.
func head(line string) string {
	before, _, _ := strings.Cut(line, ";")
	return before
}

func hintUnauthorized(s *Shell, err error) []string {
	if _, replied := errors.AsType[*machinesapi.ReplyError](err); !replied {
		return nil // it is not the API that refused
	}
	if s.credential() == "" {
		return []string{"give one with BOURSE_API_TOKEN or --token"}
	}
	return []string{"another one with BOURSE_API_TOKEN or --token; is --api the right cluster? (now " + s.baseURL() + ")"}
}

func hintConflict(_ *Shell, err error) []string {
	if _, replied := errors.AsType[*machinesapi.ReplyError](err); !replied {
		return nil
	}
	return []string{"look at it again, then repeat: another request has changed it, or holds its lease"}
}

func hintForbidden(_ *Shell, err error) []string {
	switch message := bourse.MessageOf(err); {
	case strings.HasPrefix(message, machinesapi.QuotaText):
		return []string{"destroy what is not needed, or ask who runs the cluster for more (serve broker --quotas)"}
	case slices.Contains([]string{machinesapi.ClusterOnlyText, machinesapi.ForbiddenText, machinesapi.ReadOnlyText, machinesapi.MachinesOnlyText}, message):
		return []string{"one that may, with BOURSE_API_TOKEN or --token"}
	}
	return nil
}

func hintInternal(_ *Shell, err error) []string {
	reply, replied := errors.AsType[*machinesapi.ReplyError](err)
	switch {
	case !replied:
		return nil
	case reply.RequestID == "":
		return []string{"the server's log has the cause"}
	}
	return []string{"the server's log has the cause, of request " + reply.RequestID}
}

// hintsOf returns the hints that the verb added, or else those of the cause, of
// the workers' refusals, or of the code.
func (s *Shell) hintsOf(err error) []string {
	if hints := Hints(err); hints != nil {
		return hints
	}
	if hints := s.hintOfCause(err); hints != nil {
		return hints
	}
	code := bourse.CodeOf(err)
	var hints []string
	if reply, ok := errors.AsType[*machinesapi.ReplyError](err); ok && len(reply.Refusals) > 0 {
		if hints = AfterRefusals(reply.Refusals); reply.OrderID != "" {
			hints = append(hints, "the whole decision: bourse order show "+string(reply.OrderID))
		}
	}
	if len(hints) == 0 || code != bourse.CodeInsufficient && !refusedBy(err, bourse.RefusedRegistry) { // which may need more than time
		hints = append(hints, hintOfCode[code](s, err)...)
	}
	return hints
}

// refusedBy reports whether a worker has refused an order for a reason.
func refusedBy(err error, reason bourse.RefusalReason) bool {
	reply, ok := errors.AsType[*machinesapi.ReplyError](err)
	return ok && slices.ContainsFunc(reply.Refusals, func(r bourse.Refusal) bool { return r.Reason == reason })
}

// hintOfCause is for what failed below the API.
func (s *Shell) hintOfCause(err error) []string {
	_, untrusted := errors.AsType[x509.UnknownAuthorityError](err)
	_, misnamed := errors.AsType[x509.HostnameError](err)
	lookup, unresolved := errors.AsType[*net.DNSError](err)
	_, ofAPI := errors.AsType[*machinesapi.NoReplyError](err)
	switch {
	case errors.Is(err, context.Canceled):
		return nil
	case errors.Is(err, syscall.EADDRINUSE):
		return []string{"another port, or end the program that listens on this one"}
	case errors.Is(err, syscall.ENOSPC):
		return []string{"free space on the disk, then try again"}
	case !ofAPI: // a registry or another server, which --api does not choose
		return nil
	case errors.Is(err, syscall.ECONNREFUSED):
		return []string{
			"is it running? start a cluster with: bourse dev",
			"or name another API with --api or BOURSE_API (now " + s.baseURL() + ")",
		}
	case unresolved && lookup.IsNotFound:
		return []string{"is the name right? --api or BOURSE_API (now " + s.baseURL() + ")"}
	case errors.Is(err, http.ErrSchemeMismatch):
		return []string{"--api or BOURSE_API with " + otherScheme(s.baseURL())}
	case untrusted:
		return []string{"name the CA that the API's certificate is of with --ca FILE or BOURSE_CA"}
	case misnamed:
		return []string{"--api or BOURSE_API with a name that the certificate has (now " + s.baseURL() + ")"}
	}
	return nil
}

// otherScheme returns the address that a server of the other scheme has.
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
