// Package mcp calls the tools of servers of the Model Context Protocol that run in a sandbox. The
// protocol is spoken by this process, over the sandbox's streams and ports; nothing outside of the
// sandbox is dialed.
//
// What a server says is hostile: its tools are checked, and what it returns is bounded.
package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalrun/evalrun/internal/tail"
	"github.com/evalrun/evalrun/runtime/sandbox"
)

// A Server is a server in the sandbox: an agent.MCPServer, which this package may not import.
type Server struct {
	Name      string
	Transport string // "stdio", "sse", "streamable-http"
	URL       string // of the loopback interface or of a service of the sandbox
	Command   string
	Args      []string
	Headers   map[string]string
	Env       map[string]string
}

// Times that servers have; tests change them.
var (
	startTime = time.Minute // to start and list the tools
	callTime  = 2 * time.Minute
)

const (
	maxTools       = 128 // of a server
	maxSchema      = 64 << 10
	maxDescription = 4 << 10
	maxMessage     = 16 << 20 // of the protocol
	maxText        = 1 << 20  // of a result, in bytes
	maxImages      = 8        // of a result
	maxStarts      = 4        // of a server
)

// A Tool is a tool of a server.
type Tool struct {
	Name        string // unique among all servers; letters, digits, _ and -
	Description string
	Schema      json.RawMessage // a JSON object

	server *conn
	own    string // its name with the server
}

// A Part is a text or an image.
type Part struct {
	Text  string
	Image []byte
	Type  string // of the image: "image/png"
}

// A Result is the result of a call.
type Result struct {
	Parts []Part
	Error bool // the tool, or the server, reported a failure
}

// Options of clients.
type Options struct {
	User, Dir string // of servers that are started
	Env       map[string]string
}

// A Client has the servers of one sandbox. It is safe for concurrent use. Close ends it.
type Client struct {
	sb      func(context.Context) (sandbox.Sandbox, error)
	o       Options
	servers []*conn

	mu    sync.Mutex
	tools map[string]*Tool
	names []string
	notes []string
}

// New returns a client. Servers are started by Tools.
func New(sb func(context.Context) (sandbox.Sandbox, error), servers []Server, o Options) *Client {
	c := &Client{sb: sb, o: o}
	for _, s := range servers {
		c.servers = append(c.servers, &conn{c: c, s: s})
	}
	return c
}

// Tools starts the servers and returns their tools, in the order of the servers, always the same ones.
// Each note says why a server or a tool is missing. An error is one of the sandbox, or the cause of
// ctx.
func (c *Client) Tools(ctx context.Context) (tools []Tool, notes []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tools == nil {
		if err := c.list(ctx); err != nil {
			return nil, nil, err
		}
	}
	for _, name := range c.names {
		tools = append(tools, *c.tools[name])
	}
	return tools, c.notes, nil
}

func (c *Client) list(ctx context.Context) error {
	if _, err := c.sb(ctx); err != nil {
		return err
	}
	found := make([][]*Tool, len(c.servers))
	notes := make([][]string, len(c.servers))
	var wg sync.WaitGroup
	for i, s := range c.servers {
		wg.Go(func() {
			var err error
			if found[i], notes[i], err = s.list(ctx); err != nil {
				notes[i] = []string{fmt.Sprintf("the server %s: %s", s.s.Name, brief(err))}
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c.tools = map[string]*Tool{}
	for i, list := range found {
		c.notes = append(c.notes, notes[i]...)
		for _, t := range list {
			name := t.Name
			for n := 2; c.tools[t.Name] != nil; n++ {
				end := "_" + strconv.Itoa(n)
				t.Name = name[:min(len(name), maxName-len(end))] + end
			}
			c.tools[t.Name] = t
			c.names = append(c.names, t.Name)
		}
	}
	return nil
}

// Has reports whether Tools has returned a tool of this name.
func (c *Client) Has(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tools[name] != nil
}

// Call calls a tool. A failure of the tool or of its server is a result. A server that has ended is
// started again by the next call, a few times. An error is the cause of ctx, or one of the sandbox.
func (c *Client) Call(ctx context.Context, name string, args json.RawMessage) (Result, error) {
	c.mu.Lock()
	t := c.tools[name]
	c.mu.Unlock()
	if t == nil {
		return failed("there is no tool named " + name), nil
	}
	if _, err := c.sb(ctx); err != nil {
		return Result{}, err
	}
	res, err := t.server.call(ctx, t.own, args)
	if err != nil && ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	if err != nil {
		return failed(brief(err)), nil
	}
	return res, nil
}

// Close ends the connections, and the servers that were started.
func (c *Client) Close() {
	for _, s := range c.servers {
		s.close()
	}
}

func failed(text string) Result { return Result{Parts: []Part{{Text: text}}, Error: true} }

// brief returns the text of an error, which may quote a server.
func brief(err error) string { return cut(err.Error(), 600) }

func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + " …"
}

const maxName = 64

// clean returns a name that all models accept.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, s)
}

// A conn is the connection to a server.
type conn struct {
	c *Client
	s Server

	mu      sync.Mutex
	session *sdk.ClientSession
	end     context.CancelFunc // ends the server
	gone    chan struct{}      // closed when the server has ended
	stderr  *tail.Buffer
	starts  int
	closed  bool
}

// connect returns the session, and starts the server if there is none.
func (s *conn) connect(ctx context.Context) (*sdk.ClientSession, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the server was ended")
	}
	if s.session != nil {
		select {
		case <-s.gone:
			s.drop()
		default:
			return s.session, nil
		}
	}
	if s.starts == maxStarts {
		return nil, fmt.Errorf("the server has ended %d times, and is not started again", s.starts)
	}
	s.starts++
	sb, err := s.c.sb(ctx)
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	s.end, s.gone, s.stderr = end, make(chan struct{}), &tail.Buffer{}
	t, err := s.transport(life, sb)
	if err == nil {
		client := sdk.NewClient(&sdk.Implementation{Name: "evalrun", Version: "1"},
			&sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{}})
		s.session, err = client.Connect(ctx, t, nil)
	}
	if err != nil {
		s.drop()
		if text := printed(s.stderr); text != "" {
			err = fmt.Errorf("%w; it printed %q", err, text)
		}
		return nil, fmt.Errorf("it cannot be reached: %w", err)
	}
	if session, gone := s.session, s.gone; s.s.Transport != "stdio" {
		go func() {
			session.Wait()
			close(gone)
		}()
	}
	return s.session, nil
}

// drop ends the session and the server. The caller holds mu.
func (s *conn) drop() {
	if s.end != nil {
		s.end()
	}
	if s.session != nil {
		go s.session.Close() // it may wait for the server
	}
	s.session, s.end = nil, nil
}

func (s *conn) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	started, gone := s.end != nil && s.s.Transport == "stdio", s.gone
	s.drop()
	if started {
		<-gone
	}
}

func (s *conn) transport(life context.Context, sb sandbox.Sandbox) (sdk.Transport, error) {
	if s.s.Transport == "stdio" {
		return s.start(life, sb), nil
	}
	u, err := url.Parse(s.s.URL)
	if err != nil {
		return nil, err
	}
	if _, err := dialer(sb, u.Hostname()); err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &headers{s.s.Headers, u.Host, &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			n, err := strconv.Atoi(port)
			if err != nil {
				return nil, err
			}
			d, err := dialer(sb, host)
			if err != nil {
				return nil, err
			}
			return d.Dial(ctx, n)
		},
		ResponseHeaderTimeout: callTime, MaxResponseHeaderBytes: 64 << 10, MaxConnsPerHost: 16,
		DisableCompression: true,
	}}}
	if s.s.Transport == "sse" {
		return &sdk.SSEClientTransport{Endpoint: s.s.URL, HTTPClient: client, MaxEventSize: maxMessage}, nil
	}
	return &sdk.StreamableClientTransport{Endpoint: s.s.URL, HTTPClient: client, MaxRetries: -1,
		DisableStandaloneSSE: true, MaxEventSize: maxMessage}, nil
}

// dialer returns what reaches a host: the sandbox itself, or one of its services.
func dialer(sb sandbox.Sandbox, host string) (sandbox.Dialer, error) {
	to := sb
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		g, ok := sandbox.As[sandbox.Group](sb)
		if ok {
			to, ok = g.Service(host)
		}
		if !ok {
			return nil, fmt.Errorf("%s is neither the sandbox's loopback interface nor one of its services; agents "+
				"can reach it from inside, if the network policy allows it", host)
		}
	}
	d, ok := sandbox.As[sandbox.Dialer](to)
	if !ok {
		return nil, errors.New("this sandbox has no ports")
	}
	return d, nil
}

// headers adds a server's headers to requests to it, and limits responses.
type headers struct {
	add  map[string]string
	host string
	to   http.RoundTripper
}

func (h *headers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host == h.host {
		r = r.Clone(r.Context())
		for name, value := range h.add {
			r.Header.Set(name, value)
		}
	}
	resp, err := h.to.RoundTrip(r)
	if err == nil && !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxMessage), resp.Body}
	}
	return resp, err
}

// start starts a server that speaks over its standard streams.
func (s *conn) start(life context.Context, sb sandbox.Sandbox) sdk.Transport {
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	env := map[string]string{}
	maps.Copy(env, s.c.o.Env)
	maps.Copy(env, s.s.Env)
	gone, stderr := s.gone, s.stderr
	go func() {
		defer close(gone)
		x, err := sb.Exec(life, sandbox.Command{Args: append([]string{s.s.Command}, s.s.Args...), User: s.c.o.User,
			Dir: s.c.o.Dir, Env: env, Stdin: in, Stdout: out, Stderr: stderr, FullLimit: -1})
		if err == nil {
			err = fmt.Errorf("the server ended with exit code %d", x.Code)
		}
		out.CloseWithError(err)
		in.CloseWithError(err)
	}()
	context.AfterFunc(life, func() {
		fromServer.CloseWithError(context.Canceled) // the server's output is not read any more
		toServer.CloseWithError(io.EOF)
	})
	return &sdk.IOTransport{Reader: fromServer, Writer: toServer, MaxLineLength: maxMessage}
}

// list returns the server's tools, and notes on those that are left out.
func (s *conn) list(ctx context.Context) (tools []*Tool, notes []string, err error) {
	late := fmt.Errorf("it did not start and list its tools within %v", startTime)
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, late)
	defer cancel()
	session, err := s.connect(ctx)
	if err == nil {
		for t, e := range session.Tools(ctx, nil) {
			if err = e; err != nil {
				break
			}
			if len(tools) == maxTools {
				notes = append(notes, fmt.Sprintf("the server %s has more than %d tools; the first are offered", s.s.Name,
					maxTools))
				break
			}
			tool, why := s.tool(t)
			if why != nil {
				notes = append(notes, fmt.Sprintf("the tool %q of the server %s: %s", cut(t.Name, 100), s.s.Name,
					brief(why)))
				if len(notes) > maxTools {
					break
				}
				continue
			}
			tools = append(tools, tool)
		}
	}
	if err != nil && context.Cause(ctx) == late {
		err = late
	}
	return tools, notes, err
}

// tool checks a tool.
func (s *conn) tool(t *sdk.Tool) (*Tool, error) {
	if t.Name == "" || len(t.Name) > 200 {
		return nil, errors.New("its name is empty or too long")
	}
	schema, err := json.Marshal(t.InputSchema)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	switch err := json.Unmarshal(schema, &object); {
	case len(schema) > maxSchema:
		return nil, fmt.Errorf("the schema of its arguments has %d bytes, more than %d", len(schema), maxSchema)
	case err != nil || object == nil:
		return nil, errors.New("the schema of its arguments is no object")
	case object["type"] != "object":
		return nil, errors.New(`the schema of its arguments is not of type "object"`)
	}
	name := "mcp__" + clean(s.s.Name) + "__" + clean(t.Name)
	return &Tool{Name: name[:min(len(name), maxName)], Description: cut(t.Description, maxDescription), Schema: schema,
		server: s, own: t.Name}, nil
}

func (s *conn) call(ctx context.Context, name string, args json.RawMessage) (Result, error) {
	late := fmt.Errorf("the tool did not answer within %v", callTime)
	ctx, cancel := context.WithTimeoutCause(ctx, callTime, late)
	defer cancel()
	var object map[string]any
	if err := json.Unmarshal(args, &object); err != nil || object == nil {
		return failed("the arguments are no JSON object"), nil
	}
	session, err := s.connect(ctx)
	if err != nil {
		return Result{}, err
	}
	type answer struct {
		r   *sdk.CallToolResult
		err error
	}
	done := make(chan answer, 1)
	go func() {
		r, err := session.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: args})
		done <- answer{r, err}
	}()
	var a answer
	select {
	case a = <-done:
	case <-ctx.Done():
		a.err = context.Cause(ctx)
	}
	switch {
	case a.err == nil:
		return result(a.r), nil
	case context.Cause(ctx) == late:
		return Result{}, late
	case !answered(a.err):
		s.mu.Lock()
		if s.session == session {
			s.drop()
		}
		text := printed(s.stderr)
		s.mu.Unlock()
		a.err = fmt.Errorf("the connection to the server was lost, and is made again with the next call; what this "+
			"one has done is not known: %w", a.err)
		if text != "" {
			a.err = fmt.Errorf("%w; it printed %q", a.err, text)
		}
	}
	return Result{}, a.err
}

// answered reports whether an error is the server's answer.
func answered(err error) bool {
	var wire *jsonrpc.Error
	return errors.As(err, &wire)
}

// result returns what a tool has returned, as far as it is not too large.
func result(r *sdk.CallToolResult) Result {
	res := Result{Error: r.IsError}
	left, images := maxText, 0
	text := func(s string) {
		s = strings.ToValidUTF8(s, "\ufffd")
		if n := len(s); n > left {
			s = cut(s, left) + fmt.Sprintf("\n[the rest of %d bytes is left out]", n)
			left = 0
		} else {
			left -= n
		}
		res.Parts = append(res.Parts, Part{Text: s})
	}
	for i, c := range r.Content {
		if left == 0 || i == 1000 {
			res.Parts = append(res.Parts, Part{Text: fmt.Sprintf("[%d more parts are left out]", len(r.Content)-i)})
			break
		}
		switch c := c.(type) {
		case *sdk.TextContent:
			text(c.Text)
		case *sdk.ImageContent:
			if images++; images > maxImages {
				text("[an image is left out]")
				continue
			}
			res.Parts = append(res.Parts, Part{Image: c.Data, Type: c.MIMEType})
		case *sdk.EmbeddedResource:
			if c.Resource != nil && c.Resource.Text != "" {
				text(c.Resource.Text)
			} else if c.Resource != nil {
				text("[the resource " + c.Resource.URI + ", " + c.Resource.MIMEType + "]")
			}
		case *sdk.ResourceLink:
			text("[a link to the resource " + c.URI + "]")
		default:
			text(fmt.Sprintf("[content of the kind %T is left out]", c))
		}
	}
	if len(res.Parts) == 0 && r.StructuredContent != nil {
		if raw, err := json.Marshal(r.StructuredContent); err == nil {
			text(string(raw))
		}
	}
	return res
}

// printed returns what a server has printed at last.
func printed(b *tail.Buffer) string {
	return strings.TrimSpace(strings.ToValidUTF8(b.String(), "\ufffd"))
}
