package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// members maps the names of a config's nonempty members to their values as canonical JSON. It does not contain
// metadata, mounts or standbys, because plans set them.
type members map[string]string

// comparer compares configs. It caches results, because an app's machines have only a few
// different configs.
type comparer struct {
	raw  map[string]string
	seen map[*bourse.Config]members
}

func newComparer() *comparer {
	return &comparer{raw: map[string]string{}, seen: map[*bourse.Config]members{}}
}

func (c *comparer) members(config *bourse.Config) members {
	if out, ok := c.seen[config]; ok {
		return out
	}
	stop, timeout := config.Stop()
	out := members{}
	for name, value := range map[string]any{
		"guest": guestOf(config), "env": config.Env, "init": config.Init, "restart": config.RestartPolicy(),
		"auto_destroy": config.AutoDestroy, "stop_config": []any{stop, timeout}, "requirements": config.Requirements,
		"files": config.Files, "rootfs": config.Rootfs, "runtime": config.Runtime, "allow_emulation": config.AllowEmulation, "task": config.Task,
		"services": config.Services, "checks": config.Checks, "processes": config.Processes, "containers": config.Containers,
		"volumes": config.Volumes, "metrics": config.Metrics, "schedule": config.Schedule, "dns": config.DNS,
		"statics": config.Statics, "the rest": config.Rest,
	} {
		if text := c.canonical(value); text != "" {
			out[name] = text
		}
	}
	out["image"] = bourse.ParseImageRef(config.Image).String()
	c.seen[config] = out
	return out
}

// guestOf returns a config's machine size, with defaults filled in.
func guestOf(c *bourse.Config) bourse.Guest {
	if c.Guest == nil && c.Size != "" {
		if g, err := bourse.ParseSize(c.Size); err == nil {
			return g.WithDefaults()
		}
	}
	if c.Guest == nil {
		return bourse.Guest{}.WithDefaults()
	}
	return c.Guest.WithDefaults()
}

// canonical returns v as canonical JSON: without spaces, with sorted members, and without nulls or empty strings, lists
// or objects. It returns "" if nothing remains.
func (c *comparer) canonical(v any) string {
	raw, ok := v.(json.RawMessage)
	if !ok {
		var err error
		if raw, err = json.Marshal(v); err != nil {
			return ""
		}
	}
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	if out, ok := c.raw[string(raw)]; ok {
		return out
	}
	out := canonicalJSON(raw)
	c.raw[string(raw)] = out
	return out
}

func canonicalJSON(raw []byte) string {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return string(raw)
	}
	if v = withoutEmpty(v); v == nil {
		return ""
	}
	out, err := json.Marshal(v)
	if err != nil {
		return string(raw)
	}
	return string(out)
}

// withoutEmpty removes empty values from v and returns it, or nil if nothing remains. The items
// of a list keep their positions.
func withoutEmpty(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if value = withoutEmpty(value); value == nil {
				delete(v, name)
			} else {
				v[name] = value
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i := range v {
			if item := withoutEmpty(v[i]); item != nil {
				v[i] = item
			}
		}
		if len(v) == 0 {
			return nil
		}
	case string:
		if v == "" {
			return nil
		}
	}
	return v
}

// empty reports whether raw JSON contains only empty values.
func empty(raw json.RawMessage) bool { return len(raw) == 0 || canonicalJSON(raw) == "" }

// differences describes, for users, the differences between two configs. It omits the values of environment variables,
// which may be secrets. haveDigest and wantDigest are the digests of the images; "" means unknown.
func (c *comparer) differences(have, want *bourse.Config, haveDigest, wantDigest string) []string {
	a, b := c.members(have), c.members(want)
	var out []string
	names := maps.Clone(a)
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if a[name] == b[name] {
			continue
		}
		switch name {
		case "image":
			out = append(out, fmt.Sprintf("image changed from %s to %s", have.Image, want.Image))
		case "guest":
			out = append(out, fmt.Sprintf("size changed from %s to %s", size(guestOf(have)), size(guestOf(want))))
		case "env":
			out = append(out, "env changed: "+listed(changedKeys(have.Env, want.Env)))
		default:
			out = append(out, name+" changed")
		}
	}
	if a["image"] == b["image"] && wantDigest != "" && haveDigest != "" && wantDigest != haveDigest {
		out = append(out, fmt.Sprintf("image %s changed from %s to %s", want.Image, short(haveDigest), short(wantDigest)))
	}
	return out
}

func changedKeys(a, b map[string]string) []string {
	var out []string
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			out = append(out, k)
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// listed joins the first four names, and appends the number of omitted names.
func listed(names []string) string {
	const most = 4
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func short(digest string) string {
	const shown = len("sha256:") + 12
	return digest[:min(len(digest), shown)]
}

// size formats a machine's size.
func size(g bourse.Guest) string {
	out := fmt.Sprintf("%d %s cpu, %d MB", g.CPUs, g.CPUKind, g.MemoryMB)
	if g.GPUs > 0 {
		out += fmt.Sprintf(", %d gpu %s", g.GPUs, g.GPUKind)
	}
	return out
}
