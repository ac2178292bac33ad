// Package replay is what a machine asks of the proxy when it answers a request with
// "fly-replay": send it again, to another machine, region or app. It reads what is
// asked, decides where the request goes, remembers the request's body while it is
// sent so that it can be sent again, and keeps where requests were replayed to.
//
// It opens no connection and starts nothing: [Parse] and [Plan] are functions of
// values, [Cache] is memory with bounds, and [Spools] are files without a name.
//
// The forms are those of the Machines API (Dynamic Request Routing).
package replay

import (
	"net/http"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// ContentType is that of a reply whose body is a replay.
const ContentType = "application/vnd.fly.replay+json"

// Headers of replies, in their canonical form.
const (
	headerReplay = "Fly-Replay"
	headerCache  = "Fly-Replay-Cache"
	headerTTL    = "Fly-Replay-Cache-Ttl-Secs"
	headerBypass = "Fly-Replay-Cache-Allow-Bypass"
)

// Headers of requests, in their canonical form.
const (
	HeaderSource  = "Fly-Replay-Src"           // to the machine that a request is replayed to
	HeaderFailed  = "Fly-Replay-Failed"        // to the machine that it falls back to
	HeaderStatus  = "Fly-Replay-Cache-Status"  // to the machine: hit, miss or bypass
	HeaderControl = "Fly-Replay-Cache-Control" // of a client: "skip"
)

// Bounds of what is read. A request is replayed MaxReplays times at most, so that
// two machines that send it to each other end.
const (
	MaxReplays  = 8
	MaxBody     = 64 << 10 // of a replay in JSON
	maxHeader   = 8 << 10  // of a replay in a header
	maxState    = 4 << 10
	maxPath     = 8 << 10
	maxEdits    = 64 // headers set or deleted
	maxValue    = 8 << 10
	maxRegions  = 32
	maxTimeout  = 10 * time.Minute
	minTTL      = 10 * time.Second
	maxTTL      = 24 * time.Hour
	maxPattern  = 1 << 10
	maxSegments = 32 // of a cached path
	maxToken    = 256
)

// Replay is what a machine asks for.
type Replay struct {
	Regions        []bourse.Region // codes and aliases in order of preference; none: any
	Instance       bourse.MachineID
	PreferInstance bourse.MachineID
	App            bourse.AppName // empty: the machine's own
	State          string         // given to the next machine as it is
	Elsewhere      bool           // to any machine but the one that asks
	Timeout        time.Duration  // for reaching a machine; 0: the proxy's
	Fallback       Fallback
	Transform      Transform
	Cache          CacheRule
}

// Fallback is what becomes of a request whose replay reaches no machine.
type Fallback string

// The fallbacks.
const (
	NoFallback Fallback = ""
	ForceSelf  Fallback = "force_self"  // back to the machine that asked, or an error
	PreferSelf Fallback = "prefer_self" // back to it, or to another one of its app
)

// CacheRule is where a replay is kept; without a Pattern it is not.
type CacheRule struct {
	Host        string // empty: the request's
	Prefix      string // of paths, ends with "/"; empty: not kept
	TTL         time.Duration
	AllowBypass bool // for clients that ask so
	Invalidate  bool // forget what the request was replayed by
}

// Form is how a reply asks for a replay.
type Form int

// The forms.
const (
	None Form = iota
	Header
	JSON
)

// Asked returns how a reply asks for a replay, from its headers.
func FormOf(h http.Header) Form {
	switch {
	case len(h[headerReplay]) > 0:
		return Header
	case isJSON(h.Get("Content-Type")):
		return JSON
	}
	return None
}

func isJSON(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(kind), ContentType)
}

// Strip removes what only the proxy says from the headers of a client's request,
// also where a machine would take underscores for dashes.
func Strip(h http.Header) {
	for name := range h {
		if isReplayHeader(name) && name != HeaderControl {
			delete(h, name)
		}
	}
}

// owned reports whether a header is one of replays.
func isReplayHeader(name string) bool {
	const prefix = "fly-replay"
	if len(name) < len(prefix) || !strings.EqualFold(name[:3], prefix[:3]) {
		return false
	}
	return strings.EqualFold(strings.ReplaceAll(name[:len(prefix)], "_", "-"), prefix)
}

func invalidf(format string, args ...any) error {
	return bourse.Errorf(bourse.CodeInvalid, "fly-replay: "+format, args...)
}

// validate checks what the forms have in common.
func (r *Replay) validate() error {
	switch {
	case len(r.State) > maxState:
		return invalidf("state has %d bytes: at most %d", len(r.State), maxState)
	case !validValue(r.State):
		return invalidf("state has a control character: no header can carry it")
	case r.Timeout < 0 || r.Timeout > maxTimeout:
		return invalidf("timeout %s: use up to %s", r.Timeout, maxTimeout)
	case r.Fallback != NoFallback && r.Fallback != ForceSelf && r.Fallback != PreferSelf:
		return invalidf("fallback %s: use force_self or prefer_self", bourse.Quoted(string(r.Fallback)))
	case r.Instance != "" && r.PreferInstance != "":
		return invalidf("instance and prefer_instance: name one of them")
	}
	for what, id := range map[string]bourse.MachineID{"instance": r.Instance, "prefer_instance": r.PreferInstance} {
		if id != "" && id.Validate() != nil {
			return invalidf("%s %s: want a machine's id (14 hex digits)", what, bourse.Quoted(string(id)))
		}
	}
	if r.App != "" && r.App.Validate() != nil {
		return invalidf("app %s: want an app's name", bourse.Quoted(string(r.App)))
	}
	if len(r.Regions)+len(r.Instance)+len(r.PreferInstance)+len(r.App) == 0 && !r.Elsewhere && r.Transform.empty() && !r.Cache.Invalidate {
		return invalidf("names no region, instance, app or elsewhere=true to send the request to")
	}
	return r.Transform.validate()
}

// Kept reports why a replay may not be kept, empty when it may: what is kept must
// mean the same for each request.
func (r *Replay) uncacheable() string {
	switch {
	case r.State != "":
		return "it has a state"
	case !r.Transform.empty():
		return "it changes the request"
	case r.Timeout > 0 || r.Fallback != NoFallback:
		return "it has a timeout or a fallback"
	}
	return ""
}
