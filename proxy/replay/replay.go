// Package replay implements the fly-replay protocol. A machine answers a request with
// "fly-replay" to have the proxy send it again, to another machine, region or app. The
// package parses the reply, plans the destination, stores the request's body while it is
// sent so that it can be sent again, and caches earlier replays.
//
// It opens no connections and starts no goroutines: [Parse] and [Plan] are pure functions,
// [Cache] is a bounded cache in memory, and [Spools] stores data in unnamed files.
//
// The formats are those of the Machines API (Dynamic Request Routing).
package replay

import (
	"net/http"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// ContentType is the media type of a reply whose body contains a replay.
const ContentType = "application/vnd.fly.replay+json"

// Headers of replies, in canonical form.
const (
	headerReplay = "Fly-Replay"
	headerCache  = "Fly-Replay-Cache"
	headerTTL    = "Fly-Replay-Cache-Ttl-Secs"
	headerBypass = "Fly-Replay-Cache-Allow-Bypass"
)

// Headers of requests, in canonical form.
const (
	HeaderSource  = "Fly-Replay-Src"           // sent to the machine that a request is replayed to
	HeaderFailed  = "Fly-Replay-Failed"        // sent to the machine that a request falls back to
	HeaderStatus  = "Fly-Replay-Cache-Status"  // sent to the machine: hit, miss or bypass
	HeaderControl = "Fly-Replay-Cache-Control" // sent by a client: "skip"
)

// Limits. MaxReplays is the maximum number of times that a request is replayed, which ends
// loops between machines.
const (
	MaxReplays  = 8
	MaxBody     = 64 << 10 // of a replay in JSON, in bytes
	maxHeader   = 8 << 10  // of a replay in a header, in bytes
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

// Replay is a machine's request to send the client's request elsewhere.
type Replay struct {
	Regions        []bourse.Region // codes and aliases in order of preference; none: any region
	Instance       bourse.MachineID
	PreferInstance bourse.MachineID
	App            bourse.AppName // empty: the machine's own app
	State          string         // passed to the next machine unchanged
	Elsewhere      bool           // any machine except the one that requests the replay
	Timeout        time.Duration  // for reaching a machine; 0: the proxy's default
	Fallback       Fallback
	Transform      Transform
	Cache          CacheRule
}

// Fallback specifies what happens to a request whose replay reaches no machine.
type Fallback string

// The fallbacks.
const (
	NoFallback Fallback = ""
	ForceSelf  Fallback = "force_self"  // return to the machine that requested the replay, or fail
	PreferSelf Fallback = "prefer_self" // return to that machine or another one of its app
)

// CacheRule specifies the requests for which a replay is cached.
type CacheRule struct {
	Host        string // empty: the request's host
	Prefix      string // of paths, ends with "/"; empty: not cached
	TTL         time.Duration
	AllowBypass bool // clients may bypass the cached replay
	Invalidate  bool // remove the cached replay that applies to the request
}

// Form is the format in which a reply requests a replay.
type Form int

// The forms.
const (
	None Form = iota
	Header
	JSON
)

// FormOf returns the format in which a reply with these headers requests a replay.
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

// Strip removes headers that only the proxy may set from a client's request, including
// variants with underscores, which some programs treat like dashes.
func Strip(h http.Header) {
	for name := range h {
		if isReplayHeader(name) && name != HeaderControl {
			delete(h, name)
		}
	}
}

// isReplayHeader reports whether a header belongs to the fly-replay protocol.
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

// validate checks the properties that do not depend on the format.
func (r *Replay) validate() error {
	switch {
	case len(r.State) > maxState:
		return invalidf("state has %d bytes; the maximum is %d", len(r.State), maxState)
	case !validValue(r.State):
		return invalidf("state contains a control character")
	case r.Timeout < 0 || r.Timeout > maxTimeout:
		return invalidf("timeout %s exceeds the maximum of %s", r.Timeout, maxTimeout)
	case r.Fallback != NoFallback && r.Fallback != ForceSelf && r.Fallback != PreferSelf:
		return invalidf("fallback %s: use force_self or prefer_self", bourse.Quoted(string(r.Fallback)))
	case r.Instance != "" && r.PreferInstance != "":
		return invalidf("instance and prefer_instance are mutually exclusive")
	}
	for what, id := range map[string]bourse.MachineID{"instance": r.Instance, "prefer_instance": r.PreferInstance} {
		if id != "" && id.Validate() != nil {
			return invalidf("%s %s is not a machine id (14 hex digits)", what, bourse.Quoted(string(id)))
		}
	}
	if r.App != "" && r.App.Validate() != nil {
		return invalidf("app %s is not an app name", bourse.Quoted(string(r.App)))
	}
	if len(r.Regions)+len(r.Instance)+len(r.PreferInstance)+len(r.App) == 0 && !r.Elsewhere && r.Transform.empty() && !r.Cache.Invalidate {
		return invalidf("no region, instance, app or elsewhere=true specified")
	}
	return r.Transform.validate()
}

// uncacheable returns why the replay cannot be cached, or "" if it can. A cached replay
// must mean the same for every request.
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
