package openapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Path is the path of the endpoint that serves the description.
const Path = "/openapi.json"

// Route returns a route that serves the description of the given routes and of itself.
func Route(routes []endpoint.Route, version string) endpoint.Route {
	self := endpoint.On("GET "+Path, endpoint.Anyone, nil).Writes(map[string]any{})
	describe := sync.OnceValues(func() ([]byte, error) {
		return json.Marshal(Describe(slices.Concat(routes, []endpoint.Route{self}), version))
	})
	self.Serve = func(w http.ResponseWriter, _ *endpoint.Request) error {
		text, err := describe()
		if err != nil {
			return err
		}
		return endpoint.WriteJSON(w, http.StatusOK, json.RawMessage(text))
	}
	return self
}

// Describe returns the OpenAPI description of routes, as a value for encoding/json.
func Describe(routes []endpoint.Route, version string) map[string]any {
	s := &schemas{named: object{}, read: map[reflect.Type]bool{}}
	for i := range routes {
		if body := routes[i].About.Body; body != nil {
			s.markRead(reflect.TypeOf(body))
		}
	}
	paths := object{}
	for i := range routes {
		method, pattern, _ := strings.Cut(routes[i].Pattern, " ")
		path := strings.ReplaceAll(pattern, "...}", "}")
		if paths[path] == nil {
			paths[path] = object{"parameters": inPath(path)}
		}
		paths[path].(object)[strings.ToLower(method)] = s.operation(&routes[i], method, path)
	}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Bourse", "version": cmp.Or(version, "unreleased"),
			"description": "The Machines API and Bourse's additions to it, which are marked with x-bourse. Requests may contain additional members. Unknown members of a machine config are stored.",
		},
		"servers": []object{{"url": "/", "description": "the broker that serves this description"}},
		"paths":   paths,
		"components": object{
			"schemas":         s.named,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
		},
		"security": []object{{"token": []string{}}},
	}
}

// operation returns the OpenAPI operation object of a route.
func (s *schemas) operation(rt *endpoint.Route, method, path string) object {
	about := &rt.About
	out := object{
		"operationId": operationID(method, path),
		"summary":     summaries[rt.Pattern],
		"tags":        list(tagOf(path)),
		"responses": object{
			strconv.Itoa(statusOf(about)): s.reply(about),
			"default": object{
				"description": "An error. Its code tells the caller how to react.",
				"content":     object{"application/json": object{"schema": s.failure(about)}},
			},
		},
	}
	if about.Body != nil {
		out["requestBody"] = object{"required": !about.Optional, "content": object{"application/json": object{"schema": s.of(reflect.TypeOf(about.Body))}}}
	}
	if len(about.Query) > 0 {
		var parameters []object
		for _, name := range about.Query {
			parameters = append(parameters, queryParameter(rt.Pattern, name))
		}
		out["parameters"] = parameters
	}
	if rt.Needs == endpoint.Anyone {
		out["security"] = []object{}
	}
	if callOf(rt.Pattern) == nil {
		out["x-bourse"] = true
	}
	return out
}

func (s *schemas) failure(about *endpoint.About) object {
	out := s.of(reflect.TypeFor[machinesapi.ErrorBody]())
	if about.Failure != nil {
		return object{"anyOf": []object{out, s.of(reflect.TypeOf(about.Failure))}}
	}
	return out
}

func (s *schemas) reply(about *endpoint.About) object {
	switch {
	case about.Media != "":
		return object{"description": "Not JSON.", "content": object{about.Media: object{"schema": object{}}}}
	case about.Reply == nil:
		return object{"description": "Success."}
	}
	media, says := "application/json", "Success."
	if about.Lines {
		media, says = machinesapi.TypeLines, "One JSON value per line."
	}
	return object{"description": says, "content": object{media: object{"schema": s.of(reflect.TypeOf(about.Reply))}}}
}

func statusOf(about *endpoint.About) int {
	if about.Reply == nil && about.Media == "" {
		return cmp.Or(about.Status, http.StatusNoContent)
	}
	return cmp.Or(about.Status, http.StatusOK)
}

var words = regexp.MustCompile(`[A-Za-z]+`)

var parameter = regexp.MustCompile(`\{(\w+)\}`)

func inPath(path string) []object {
	out := []object{}
	for _, found := range parameter.FindAllStringSubmatch(path, -1) {
		out = append(out, object{"name": found[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	return out
}

// operationID derives an operation's ID from its method and path, such as getAppsAppMachines.
func operationID(method, path string) string {
	var out strings.Builder
	out.WriteString(strings.ToLower(method))
	for _, word := range words.FindAllString(strings.TrimPrefix(path, "/v1"), -1) {
		out.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return out.String()
}

// tagOf returns a path's OpenAPI tag, which is the path's first noun.
func tagOf(path string) string {
	noun, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, "/v1"), "/"), "/")
	if _, below, ok := strings.Cut(path, "{app}/"); ok {
		noun, _, _ = strings.Cut(below, "/")
	}
	return strings.TrimSuffix(noun, ".json")
}
