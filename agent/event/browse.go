package event

// Kinds of browsers.
//
//	class        kind                 meaning
//	action       browse               open an address
//	action       browse_interactive   calls on the browser, as text
//	observation  browse               what there is to see afterwards
type (
	// BrowseURL opens an address in the active page.
	BrowseURL struct {
		URL string `json:"url"`
	}
	// Browse is calls on a browser, in the notation of BrowserGym's actions: click("a51"). Without
	// code nothing is done and no step is spent: the observation is of the page as it was seen
	// last, which is how an agent gets its first one.
	Browse struct {
		Code string `json:"code,omitempty"`
	}

	// Browsed is what there is to see in a browser after an action. Texts of the page are not in
	// it: whoever wants them renders them from the blobs, with options of his own (package
	// browsergym/obs). Everything in it may come from a hostile page.
	Browsed struct {
		URL     string        `json:"url"`               // of the active page
		Pages   []BrowserPage `json:"pages,omitempty"`   // open ones, oldest first
		Active  int           `json:"active,omitempty"`  // index of the active one
		Focused string        `json:"focused,omitempty"` // mark of the element that has the focus
		Action  string        `json:"action,omitempty"`  // the text that was executed
		Error   string        `json:"error,omitempty"`   // why it failed, as the agent is told
		Chat    []BrowserChat `json:"chat,omitempty"`    // what was said since the last observation
		Elapsed float64       `json:"elapsed,omitempty"` // seconds since the episode began
		Step    int           `json:"step,omitempty"`    // how many steps were made so far
		Done    bool          `json:"done,omitempty"`    // the episode is over: no further action will be executed

		Screenshot *Blob `json:"screenshot,omitempty"` // image/png
		// image/png: the screenshot with the marks of elements drawn over it
		Marks      *Blob `json:"marks,omitempty"`
		AX         *Blob `json:"ax,omitempty"`         // obs.AXTree as JSON
		DOM        *Blob `json:"dom,omitempty"`        // obs.Snapshot as JSON
		Properties *Blob `json:"properties,omitempty"` // obs.Properties as JSON

		// what pages wrote to their consoles, and requests that failed, since the last observation
		Log        []BrowserLog      `json:"log,omitempty"`
		LogDropped int               `json:"log_dropped,omitempty"`
		Downloads  []BrowserDownload `json:"downloads,omitempty"` // files that came since the last observation
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
		Name  string `json:"name"`  // as the page wants it: hostile
		State string `json:"state"` // completed, canceled
		Size  int64  `json:"size"`
		Blob  *Blob  `json:"blob,omitempty"`
		Path  string `json:"path,omitempty"` // where it was put for the agent, if it was
	}
)

func (BrowseURL) Kind() string { return "browse" }
func (Browse) Kind() string    { return "browse_interactive" }
func (Browsed) Kind() string   { return "browse" }

func (BrowseURL) Class() Class { return Action }
func (Browse) Class() Class    { return Action }
func (Browsed) Class() Class   { return Observation }
