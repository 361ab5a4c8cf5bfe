import http.server


class Shop(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"kestrel\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Shop).serve_forever()
