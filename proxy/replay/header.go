package replay

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// Parse parses the replay that a reply requests. h contains the reply's headers, and form is the result of FormOf(h).
// body is used only if form is JSON. If the replay is invalid, Parse returns CodeInvalid with a message for the
// author of the machine's program.
func Parse(form Form, h http.Header, body []byte) (r *Replay, err error) {
	switch {
	case form == JSON:
		r, err = parseJSON(h, body)
	case len(h[headerReplay]) > 1:
		err = invalidf("the reply contains %d fly-replay headers instead of one", len(h[headerReplay]))
	case isJSON(h.Get("Content-Type")):
		err = invalidf("the reply contains both a fly-replay header and a body of type %s", ContentType)
	default:
		r, err = parseHeader(h)
	}
	if err == nil {
		err = r.validate()
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// parseHeader parses a header of the form "field=value;field=value". A value that contains ";" must
// be quoted.
func parseHeader(h http.Header) (*Replay, error) {
	text := h.Get(headerReplay)
	if len(text) > maxHeader {
		return nil, invalidf("the header is %d bytes long; the maximum is %d", len(text), maxHeader)
	}
	r, seen := &Replay{}, map[string]bool{}
	for rest := text; rest != ""; {
		var name, value string
		var err error
		if name, value, rest, err = field(rest); err != nil {
			return nil, err
		}
		if name == "" {
			continue
		}
		if seen[name] {
			return nil, invalidf("field %s appears twice", name)
		}
		seen[name] = true
		if err = r.set(name, value); err != nil {
			return nil, err
		}
	}
	var err error
	r.Cache, err = cacheHeaders(h)
	return r, err
}

// field splits s after its first field. It returns the field's name and value, and the rest of s. If the field is
// empty, the name is "".
func field(s string) (name, value, rest string, err error) {
	name, after, found := strings.Cut(s, "=")
	if i := strings.IndexByte(name, ';'); i >= 0 || !found {
		if i < 0 {
			i = len(s)
		}
		if strings.TrimSpace(s[:i]) != "" {
			return "", "", "", invalidf("%s is not of the form field=value; separate fields with \";\"", bourse.Quoted(strings.TrimSpace(s[:i])))
		}
		return "", "", s[min(i+1, len(s)):], nil
	}
	name = strings.ToLower(strings.TrimSpace(name))
	after = strings.TrimLeft(after, " \t")
	if strings.HasPrefix(after, `"`) {
		value, rest, err = quoted(after[1:])
	} else {
		value, rest, _ = strings.Cut(after, ";")
		value = strings.TrimRight(value, " \t")
	}
	return name, value, rest, err
}

// quoted reads a quoted value and the end of its field. s must start after the opening quotation
// mark.
func quoted(s string) (value, rest string, err error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case s[i] == '"':
			end, rest, _ := strings.Cut(s[i+1:], ";")
			if strings.TrimSpace(end) != "" {
				return "", "", invalidf("unexpected %s after a quoted value", bourse.Quoted(strings.TrimSpace(end)))
			}
			return b.String(), rest, nil
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", invalidf("missing closing quotation mark")
}

// set sets the field with the given name.
func (r *Replay) set(name, value string) (err error) {
	if value == "" && name != "state" {
		return invalidf("%s is empty", name)
	}
	switch name {
	case "region":
		r.Regions, err = regions(value)
	case "instance":
		r.Instance = bourse.MachineID(strings.ToLower(value))
	case "prefer_instance":
		r.PreferInstance = bourse.MachineID(strings.ToLower(value))
	case "app":
		r.App = bourse.AppName(value)
	case "state":
		r.State = value
	case "elsewhere":
		switch strings.ToLower(value) {
		case "true":
			r.Elsewhere = true
		case "false":
		default:
			err = invalidf("elsewhere=%s is invalid: use true", bourse.Quoted(value))
		}
	case "timeout":
		r.Timeout, err = timeout(value)
	case "fallback":
		r.Fallback = Fallback(value)
	default:
		err = invalidf("unknown field %s; the fields are region, instance, prefer_instance, app, state, elsewhere, timeout and fallback", bourse.Quoted(name))
	}
	return err
}

func timeout(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, invalidf("timeout %s is not a duration such as 10s or 800ms", bourse.Quoted(s))
	}
	return d, nil
}

// regions parses a list of region codes and aliases.
func regions(list string) (out []bourse.Region, err error) {
	for word := range strings.SplitSeq(list, ",") {
		r := bourse.Region(strings.ToLower(strings.TrimSpace(word)))
		if len(out) == maxRegions {
			return nil, invalidf("more than %d regions", maxRegions)
		}
		if !wellFormed(r) {
			return nil, invalidf("region %s is not a short code such as gru, or a quoted list of codes", bourse.Quoted(word))
		}
		out = append(out, r)
	}
	return out, nil
}

// wellFormed reports whether r has the form of a region code or an alias. Because [bourse.Region.Validate] refuses
// aliases, wellFormed prepends a letter first, which turns an alias into an ordinary name.
func wellFormed(r bourse.Region) bool {
	return r != "" && r[0] >= 'a' && r[0] <= 'z' && ("x"+r).Validate() == nil
}

// cacheHeaders parses the headers with which a machine controls whether a replay is cached.
func cacheHeaders(h http.Header) (c CacheRule, err error) {
	pattern, ttl := h.Get(headerCache), h.Get(headerTTL)
	switch {
	case pattern == "":
		return c, nil
	case strings.EqualFold(strings.TrimSpace(pattern), "invalidate"):
		return CacheRule{Invalidate: true}, nil
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(ttl), 10, 64)
	if err != nil {
		return c, invalidf("fly-replay-cache-ttl-secs %s is not a number of seconds", bourse.Quoted(ttl))
	}
	bypass := strings.ToLower(strings.TrimSpace(h.Get(headerBypass)))
	return newCacheRule(pattern, seconds, bypass == "yes" || bypass == "true")
}

// newCacheRule returns a rule for a pattern such as "/path/*" or "example.com/path/*".
func newCacheRule(pattern string, seconds int64, bypass bool) (c CacheRule, err error) {
	c.Host, c.Prefix, _ = strings.Cut(strings.TrimSpace(pattern), "/")
	c.Host, c.Prefix = strings.ToLower(c.Host), "/"+c.Prefix
	switch {
	case len(pattern) > maxPattern:
		return c, invalidf("the cache pattern is %d bytes long; the maximum is %d", len(pattern), maxPattern)
	case !strings.HasSuffix(c.Prefix, "/*") || !validValue(pattern) || strings.ContainsAny(c.Prefix[:len(c.Prefix)-1], "*?#"):
		return c, invalidf("cache pattern %s is not a path that ends with /*, such as /some/path/*", bourse.Quoted(pattern))
	case strings.Count(c.Prefix, "/") > maxSegments:
		return c, invalidf("cache pattern %s has more than %d levels", bourse.Quoted(pattern), maxSegments)
	case strings.Contains(c.Host, ":"):
		return c, invalidf("cache pattern %s contains a port", bourse.Quoted(pattern))
	case seconds < int64(minTTL/time.Second):
		return c, invalidf("the cache TTL is %d seconds; the minimum is %d", seconds, minTTL/time.Second)
	}
	c.Prefix = strings.TrimSuffix(c.Prefix, "*")
	c.TTL = min(time.Duration(min(seconds, int64(maxTTL/time.Second)))*time.Second, maxTTL)
	c.AllowBypass = bypass
	return c, nil
}
