package workload

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// maxWarnings is the maximum number of warnings about one config. A limit is necessary because a client may send any
// number of unknown members.
const maxWarnings = 32

// Review checks the config of an order or update. If a member is invalid, Review returns a CodeInvalid error that
// contains the path of the first such member. A member is invalid if clients could not decode it, if [bourse.Fields]
// rejects it, or if it describes an unsupported service, program or check. Review returns warnings about members that
// are stored but have no effect, and about combinations of service settings that would leave the machine stopped.
func Review(c *bourse.Config) ([]bourse.Warning, error) {
	if err := Validate(&c.StoredConfig); err != nil {
		return nil, err
	}
	r := review{kind: c.ImageKind()}
	if err := r.fields("config.", reflect.ValueOf(c).Elem()); err != nil {
		return nil, err
	}
	if len(c.Rest) > 0 {
		if err := r.json("config", c.Rest); err != nil {
			return nil, err
		}
	}
	services, err := readServices(c)
	if err == nil {
		_, err = readProgram(c)
	}
	if err == nil {
		_, err = readChecks(c)
	}
	if err == nil && r.kind == bourse.HostImage {
		err = checkSinglePort(services)
	}
	if err != nil {
		return nil, err
	}
	if r.kind != bourse.PollerImage {
		for _, w := range reviewServices(c, services) {
			r.warn(w.Field, w.Message)
		}
	}
	slices.SortFunc(r.warnings, func(a, b bourse.Warning) int { return cmp.Compare(a.Field, b.Field) })
	return r.warnings, nil
}

type review struct {
	kind     bourse.ImageKind
	warnings []bourse.Warning
}

// fields reviews the fields of a struct. path must end with a dot.
func (r *review) fields(path string, v reflect.Value) error {
	for i := range v.NumField() {
		value, name := v.Field(i), memberName(v.Type().Field(i))
		var err error
		switch {
		case name == "-" || value.IsZero():
		case name == "": // an embedded struct
			err = r.fields(path, value)
		default:
			err = r.field(path+name, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// field reviews a field that is not the zero value.
func (r *review) field(path string, v reflect.Value) error {
	if raw, ok := reflect.TypeAssert[json.RawMessage](v); ok {
		return r.json(path, raw)
	}
	if field := bourse.FieldOf(path); field != nil {
		return r.reviewField(field)
	}
	switch v.Kind() { //nolint:exhaustive // the other kinds have entries in bourse.Fields
	case reflect.Pointer:
		return r.fields(path+".", v.Elem())
	case reflect.Struct:
		return r.fields(path+".", v)
	case reflect.Slice:
		for i := range v.Len() {
			if err := r.fields(path+"[].", v.Index(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *review) json(path string, raw []byte) error {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "invalid %s: %w", path, err)
	}
	return r.walk(path, v)
}

// walk reviews a member that was received as JSON, and all members below it.
func (r *review) walk(path string, value any) error {
	if field := bourse.FieldOf(path); field != nil && !field.HasMembers(path, r.kind) {
		if hasEffect(value, field.NoEffect) {
			return r.reviewField(field)
		}
		return nil
	}
	switch value := value.(type) {
	case map[string]any:
		named := bourse.FieldOf(path+".*") != nil
		for _, name := range slices.Sorted(maps.Keys(value)) { // sorted, so that the same error is always returned
			below := path + "." + member(name)
			if named {
				below = path + ".*"
			}
			if err := r.walk(below, value[name]); err != nil {
				return err
			}
		}
		return nil
	case []any:
		for _, v := range value {
			if err := r.walk(path+"[]", v); err != nil {
				return err
			}
		}
		return nil
	}
	if hasEffect(value, nil) {
		r.warn(path, "unknown to Bourse: stored and returned, but without effect")
	}
	return nil
}

// Unknown returns a warning for each non-empty member of raw, a JSON body, for which v has no field. The caller must
// already have decoded raw into v.
func Unknown(raw []byte, v any) []bourse.Warning {
	var r review
	r.unknown("", bourse.UnknownMembers(raw, v))
	return r.warnings
}

func (r *review) unknown(path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			r.unknown(strings.TrimPrefix(path+"."+member(name), "."), value[name])
		}
	case []any:
		for _, v := range value {
			r.unknown(path+"[]", v)
		}
	default:
		if hasEffect(value, nil) {
			r.warn(path, "not supported by Bourse: ignored")
		}
	}
}

func (r *review) reviewField(f *bourse.Field) error {
	switch f.TreatmentFor(r.kind) {
	case bourse.FieldRefused:
		return f.Err()
	case bourse.FieldStored:
		r.warn(f.Name(), "stored and returned, but without effect: "+f.Reason)
	case bourse.FieldSupported:
	}
	return nil
}

func (r *review) warn(field, message string) {
	w := bourse.Warning{Field: field, Message: message}
	if len(r.warnings) < maxWarnings && !slices.Contains(r.warnings, w) {
		r.warnings = append(r.warnings, w)
	}
}

// hasEffect reports whether a member's value requests anything. Empty values, false, 0, and the values listed in idle
// do not.
func hasEffect(value any, idle []string) bool {
	switch v := value.(type) {
	case nil:
		return false
	case bool:
		return v
	case map[string]any:
		for _, below := range v {
			if hasEffect(below, nil) {
				return true
			}
		}
		return false
	case []any:
		return slices.ContainsFunc(v, func(item any) bool { return hasEffect(item, nil) })
	}
	text := fmt.Sprint(value)
	return text != "" && text != "0" && !slices.Contains(idle, text)
}

var memberPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// member formats a member's name as part of a path. It quotes names that contain unusual characters.
func member(name string) string {
	if memberPattern.MatchString(name) {
		return name
	}
	return bourse.Quoted(name)
}

func memberName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
