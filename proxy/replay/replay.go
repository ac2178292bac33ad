// Package replay implements the fly-replay protocol. A machine can reply to a request with the header "fly-replay" to
// make the proxy resend the request to another machine, region or app. The package parses the reply, determines the
// destination, and caches earlier replays. It also stores request bodies as they are sent, so that they can be sent
// again.
//
// The package does not open any connections or start any goroutines: [Parse] and [Plan] are pure functions, [Cache] is
// a bounded cache in memory, and [Spools] stores data in unnamed files.
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
	HeaderSource  = "Fly-Replay-Src"           // sent to the machine to which a request is replayed
	HeaderFailed  = "Fly-Replay-Failed"        // sent to the machine to which a request falls back
	HeaderStatus  = "Fly-Replay-Cache-Status"  // sent to the machine; hit, miss or bypass (see Status)
	HeaderControl = "Fly-Replay-Cache-Control" // sent by the client; "skip" bypasses the cache
)

// Limits for replays. MaxReplays limits how often a request is replayed, which breaks loops between machines.
const (
	MaxReplays  = 8
	MaxBody     = 64 << 10 // bytes of a replay in JSON
	maxHeader   = 8 << 10  // bytes of a replay in a header
	maxState    = 4 << 10
	maxPath     = 8 << 10
	maxEdits    = 64 // headers that a replay sets or deletes
	maxValue    = 8 << 10
	maxRegions  = 32
	maxTimeout  = 10 * time.Minute
	minTTL      = 10 * time.Second
	maxTTL      = 24 * time.Hour
	maxPattern  = 1 << 10
	maxSegments = 32 // segments of a cached path
	maxToken    = 256
)

// Replay is a machine's instruction to send a client's request to another destination.
type Replay struct {
	Regions        []bourse.Region // region codes and aliases in order of preference; empty: any region
	Instance       bourse.MachineID
	PreferInstance bourse.MachineID
	App            bourse.AppName // "": the app to which the machine belongs
	State          string         // passed to the next machine without changes
	Elsewhere      bool           // whether to exclude the machine that requests the replay
	Timeout        time.Duration  // time limit for reaching a machine; 0: the proxy's default
	Fallback       Fallback
	Transform      Transform
	Cache          CacheRule
}

// Fallback specifies what happens to a request whose replay fails to reach a machine.
type Fallback string

// Values of Fallback.
const (
	NoFallback Fallback = ""
	ForceSelf  Fallback = "force_self"  // the request returns to the machine that requested the replay, or fails
	PreferSelf Fallback = "prefer_self" // the request returns to that machine or, if it cannot be used, to another machine of its app
)

// CacheRule specifies the requests for which a replay is cached.
type CacheRule struct {
	Host        string // "": the host of the request
	Prefix      string // prefix of the paths, which ends with "/"; "": the replay is not cached
	TTL         time.Duration
	AllowBypass bool // clients may bypass the cache
	Invalidate  bool // whether to remove the cached replays that apply to the request
}

// Form specifies how a reply requests a replay.
type Form int

// The forms in which a reply can request a replay.
const (
	None Form = iota
	Header
	JSON
)

// FormOf returns the form in which a reply with the given headers requests a replay.
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

// validate checks the properties of a replay that do not depend on its form.
func (r *Replay) validate() error {
	switch {
	case len(r.State) > maxState:
		return invalidf("state is %d bytes long; the maximum is %d", len(r.State), maxState)
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

// uncacheable returns the reason why a replay cannot be cached, or "" if it can. A cached replay must have the same
// effect for every request.
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
