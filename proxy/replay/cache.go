package replay

import (
	"container/list"
	"crypto/sha256"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/route"
	"github.com/bourse-dev/bourse/workload"
)

// Status is the value of the header that tells a machine whether the replay cache was used for a request.
type Status string

// Values of Status.
const (
	Hit    Status = "hit"    // the cache contained the destination of an earlier replay
	Miss   Status = "miss"   // another machine requested the replay, and the cache was not used
	Bypass Status = "bypass" // the client asked to bypass the cache
)

// Limits for the cache. An entry takes up about 512 bytes.
const (
	maxEntries    = 50_000
	maxAppEntries = 5_000
)

// Cache stores the destinations of earlier replays, by host name and path, and by session. Entries
// are only hints: if an entry no longer leads to a machine, the entry is removed and the request
// goes to the app. It is safe for concurrent use.
type Cache struct {
	mu   sync.Mutex
	all  *list.List // list of *entry, most recently used first
	apps map[string]*appCache
}

type appCache struct {
	entries map[key]*entry
	order   *list.List // list of the app's entries, like Cache.all
}

// key identifies an entry within an app.
type key struct {
	host    string
	prefix  string
	session [sha256.Size]byte // hash of the type, name and value of the header or cookie; zero: no session
}

type entry struct {
	app            string
	key            key
	replay         CachedReplay
	expires        time.Time
	inAll          *list.Element
	inApp          *list.Element
	issuerInstance bourse.InstanceID // version of the machine that requested the replay
	bypass         bool
}

// CachedReplay is the replay of an earlier request.
type CachedReplay struct {
	Replay Replay
	Issuer bourse.MachineID // machine that requested the replay
	Region bourse.Region
}

// NewCache returns an empty cache.
func NewCache() *Cache { return &Cache{all: list.New(), apps: map[string]*appCache{}} }

// Lookup returns the cached replay that applies to a request, with the status Hit. If a cached replay applies, but
// the client asked to bypass the cache, Lookup returns only the status Bypass. If no cached replay applies, the
// status is empty.
func (c *Cache) Lookup(t *route.Target, r *http.Request, now time.Time) (CachedReplay, Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	app := c.apps[t.App.ID]
	if app == nil {
		return CachedReplay{}, ""
	}
	for _, k := range keys(t, r) {
		e := app.entries[k]
		if e == nil {
			continue
		}
		if !now.Before(e.expires) || !e.isValid(t) {
			c.remove(e)
			continue
		}
		if e.bypass && strings.EqualFold(strings.TrimSpace(r.Header.Get(HeaderControl)), "skip") {
			return CachedReplay{}, Bypass
		}
		c.all.MoveToFront(e.inAll)
		app.order.MoveToFront(e.inApp)
		return e.replay, Hit
	}
	return CachedReplay{}, ""
}

// isValid reports whether the machine that requested the replay still exists and has the same version. Another version
// might request a different replay. isValid does not check the destination; [Plan] does.
func (e *entry) isValid(t *route.Target) bool {
	for i := range t.Backends {
		if b := &t.Backends[i]; b.Machine == e.replay.Issuer {
			return b.Instance == e.issuerInstance
		}
	}
	return false
}

// Store caches a replay. t is the target of request r, and from is the machine that requested the replay in its reply
// to r. The replay's cache rule and the target's sessions determine which later requests use the cached replay. If
// the reply contains a cache rule, but the replay cannot be cached, Store returns the reason. Otherwise, it returns
// "".
func (c *Cache) Store(t *route.Target, r *http.Request, from bourse.MachineID, replay *Replay, now time.Time) (reason string) {
	if replay.Cache.Invalidate {
		c.Invalidate(t, r)
		return ""
	}
	reason = replay.uncacheable()
	b := backend(t, from)
	if reason != "" || b == nil {
		if replay.Cache.Prefix == "" {
			reason = ""
		}
		return reason
	}
	kept := CachedReplay{Replay: *replay, Issuer: from, Region: b.Region}
	kept.Replay.Cache = CacheRule{}
	if rule := replay.Cache; rule.Prefix != "" {
		host := requestHost(r)
		switch {
		case rule.Host != "" && rule.Host != host:
			reason = "its pattern is for another domain"
		case !strings.HasPrefix(r.URL.Path, rule.Prefix) && r.URL.Path+"/" != rule.Prefix:
			reason = "its pattern does not match the request"
		default:
			c.add(&entry{
				app: t.App.ID, key: key{host: host, prefix: rule.Prefix}, replay: kept,
				expires: now.Add(rule.TTL), issuerInstance: b.Instance, bypass: rule.AllowBypass,
			})
		}
	}
	for i := range t.Port.HTTP.ReplayCache {
		s := &t.Port.HTTP.ReplayCache[i]
		if k, ok := sessionKey(s, r); ok && s.TTLSeconds > 0 {
			c.add(&entry{
				app: t.App.ID, key: k, replay: kept,
				expires: now.Add(min(max(time.Duration(s.TTLSeconds)*time.Second, minTTL), maxTTL)), issuerInstance: b.Instance, bypass: s.AllowBypass,
			})
			break
		}
	}
	return reason
}

// Invalidate removes all cached replays that apply to a request.
func (c *Cache) Invalidate(t *route.Target, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if app := c.apps[t.App.ID]; app != nil {
		for _, k := range keys(t, r) {
			if e := app.entries[k]; e != nil {
				c.remove(e)
			}
		}
	}
}

// Len returns the number of cached replays.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.Len()
}

func (c *Cache) add(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	app := c.apps[e.app]
	if app != nil && app.entries[e.key] != nil {
		c.remove(app.entries[e.key])
	}
	if app = c.apps[e.app]; app == nil {
		app = &appCache{entries: map[key]*entry{}, order: list.New()}
		c.apps[e.app] = app
	}
	app.entries[e.key], e.inApp, e.inAll = e, app.order.PushFront(e), c.all.PushFront(e)
	if app.order.Len() > maxAppEntries {
		c.remove(app.order.Back().Value.(*entry))
	}
	if c.all.Len() > maxEntries {
		c.remove(c.all.Back().Value.(*entry))
	}
}

func (c *Cache) remove(e *entry) {
	app := c.apps[e.app]
	delete(app.entries, e.key)
	app.order.Remove(e.inApp)
	c.all.Remove(e.inAll)
	if len(app.entries) == 0 {
		delete(c.apps, e.app)
	}
}

func backend(t *route.Target, id bourse.MachineID) *route.Backend {
	for i := range t.Backends {
		if t.Backends[i].Machine == id {
			return &t.Backends[i]
		}
	}
	return nil
}

// keys returns the keys under which a replay of a request may be cached. The keys for the request's sessions come
// first, followed by the keys for the prefixes of its path, longest first.
func keys(t *route.Target, r *http.Request) (out []key) {
	for i := range t.Port.HTTP.ReplayCache {
		if k, ok := sessionKey(&t.Port.HTTP.ReplayCache[i], r); ok {
			out = append(out, k)
		}
	}
	host, path := requestHost(r), r.URL.Path
	if len(path) < maxPattern && !strings.HasSuffix(path, "/") { // a pattern such as "/a/*" also applies to /a
		path += "/"
	}
	var ends []int
	for i := 0; i < min(len(path), maxPattern) && len(ends) < maxSegments; i++ {
		if path[i] == '/' {
			ends = append(ends, i+1)
		}
	}
	for _, end := range slices.Backward(ends) {
		out = append(out, key{host: host, prefix: path[:end]})
	}
	return out
}

// sessionKey returns the key of the session to which a request belongs, according to s. The key
// contains a hash of the session's value, because the value is often secret. sessionKey returns
// false if the request does not belong to such a session.
func sessionKey(s *workload.ReplayCache, r *http.Request) (key, bool) {
	var value string
	if s.Type == "cookie" {
		if cookie, err := r.Cookie(s.Name); err == nil {
			value = cookie.Value
		}
	} else {
		value = r.Header.Get(s.Name)
	}
	if value == "" || !strings.HasPrefix(r.URL.Path, s.PathPrefix) {
		return key{}, false
	}
	return key{requestHost(r), s.PathPrefix, sha256.Sum256([]byte(s.Type + "\x00" + s.Name + "\x00" + value))}, true
}

// requestHost returns the host name of a request, without the port.
func requestHost(r *http.Request) string {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
