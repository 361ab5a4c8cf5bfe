package event

// Kinds of browser events.
//
//	class        kind                 meaning
//	action       browse               open an address
//	action       browse_interactive   calls on the browser, as text
//	observation  browse               the state of the browser afterwards
type (
	// BrowseURL opens an address in the active page.
	BrowseURL struct {
		URL string `json:"url"`
	}
	// Browse is a list of calls on a browser in the notation of BrowserGym's actions: click("a51").
	// With empty Code nothing is done and no step is used; the observation repeats the last known
	// state of the page. Agents get their first observation this way.
	Browse struct {
		Code string `json:"code,omitempty"`
	}

	// Browsed is the state of a browser after an action. It does not contain the page's text:
	// readers render that from the blobs with their own options (package browsergym/obs). Every
	// field may come from a hostile page.
	Browsed struct {
		URL     string        `json:"url"`               // URL of the active page
		Pages   []BrowserPage `json:"pages,omitempty"`   // open pages, oldest first
		Active  int           `json:"active,omitempty"`  // index of the active page
		Focused string        `json:"focused,omitempty"` // mark of the focused element
		Action  string        `json:"action,omitempty"`  // the code that was executed
		Error   string        `json:"error,omitempty"`   // why the action failed, in the words shown to the agent
		Chat    []BrowserChat `json:"chat,omitempty"`    // messages since the last observation
		Elapsed float64       `json:"elapsed,omitempty"` // seconds since the episode began
		Step    int           `json:"step,omitempty"`    // number of steps so far
		Done    bool          `json:"done,omitempty"`    // the episode is over; no further action is executed

		Screenshot *Blob `json:"screenshot,omitempty"` // image/png
		// image/png: the screenshot with the elements' marks drawn over it
		Marks      *Blob `json:"marks,omitempty"`
		AX         *Blob `json:"ax,omitempty"`         // obs.AXTree as JSON
		DOM        *Blob `json:"dom,omitempty"`        // obs.Snapshot as JSON
		Properties *Blob `json:"properties,omitempty"` // obs.Properties as JSON

		// console output of pages and failed requests since the last observation
		Log        []BrowserLog      `json:"log,omitempty"`
		LogDropped int               `json:"log_dropped,omitempty"`
		Downloads  []BrowserDownload `json:"downloads,omitempty"` // files downloaded since the last observation
	}

	BrowserPage struct {
		URL   string `json:"url"`
		Title string `json:"title,omitempty"`
	}
	// BrowserChat is a message between the simulated user and the agent. Role is "user",
	// "user_image", "assistant" or "infeasible".
	BrowserChat struct {
		Role string  `json:"role"`
		Text string  `json:"text"`
		Time float64 `json:"time,omitempty"` // seconds since 1970
	}
	BrowserLog struct {
		Kind string `json:"kind"` // console, exception, network
		Text string `json:"text"`
		URL  string `json:"url,omitempty"`
	}
	BrowserDownload struct {
		URL   string `json:"url"`
		Name  string `json:"name"`  // chosen by the page; untrusted
		State string `json:"state"` // completed, canceled
		Size  int64  `json:"size"`
		Blob  *Blob  `json:"blob,omitempty"`
		Path  string `json:"path,omitempty"` // the path of the agent's copy, if there is one
	}
)

func (BrowseURL) Kind() string { return "browse" }
func (Browse) Kind() string    { return "browse_interactive" }
func (Browsed) Kind() string   { return "browse" }

func (BrowseURL) Class() Class { return Action }
func (Browse) Class() Class    { return Action }
func (Browsed) Class() Class   { return Observation }
