package endpoint

import "net/http"

// About describes the requests and replies of a route, for the OpenAPI description. Each body is
// represented by a value of its type.
type About struct {
	Body     any      // type of the JSON request body; nil: no body
	Optional bool     // the request body may be empty
	Bodiless bool     // the route has no request body, although its method usually has one
	Reply    any      // type of the JSON reply; nil: no reply body
	Failure  any      // type of the JSON reply on failure, if it differs from the usual error body
	Lines    bool     // the reply is a stream of Reply values, one per line
	Media    string   // media type of a reply that is not JSON
	Status   int      // status of the reply; default 200, or 204 without a reply
	Query    []string // names of query parameters
}

// Reads sets the type of the request body.
func (rt Route) Reads(body any) Route { rt.About.Body = body; return rt }

// MayRead sets the type of an optional request body.
func (rt Route) MayRead(body any) Route { rt.About.Optional = true; return rt.Reads(body) }

// ReadsNothing declares that the route has no request body, although its method usually has one.
func (rt Route) ReadsNothing() Route { rt.About.Bodiless = true; return rt }

// Writes sets the type of a successful reply.
func (rt Route) Writes(reply any) Route { rt.About.Reply = reply; return rt }

// Makes sets the type of a successful reply, and sets its status to 201.
func (rt Route) Makes(reply any) Route { return rt.Writes(reply).Answers(http.StatusCreated) }

// Answers sets the status of a successful reply.
func (rt Route) Answers(status int) Route { rt.About.Status = status; return rt }

// Fails sets the type of the reply to a valid request that fails.
func (rt Route) Fails(reply any) Route { rt.About.Failure = reply; return rt }

// Streams declares that a successful reply is a stream of lines, each a JSON value of the given
// type.
func (rt Route) Streams(line any) Route { rt.About.Lines = true; return rt.Writes(line) }

// Sends sets the media type of a successful reply that is not JSON.
func (rt Route) Sends(media string) Route { rt.About.Media = media; return rt }

// Asks sets the names of the route's query parameters.
func (rt Route) Asks(names ...string) Route { rt.About.Query = names; return rt }
